from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
import subprocess
import sys
import threading
import tracemalloc
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from modeldyno import Profiled, profiled
from modeldyno.base.errors import RequestError
from modeldyno.base.system import process_tree
from modeldyno.engine.trace import regions as trace_regions
from modeldyno.regions import memory_meters
from modeldyno.regions.recorder import MOST_REGIONS, OTHERS, AtExit
from modeldyno.regions.summary import recording_cost

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator, Iterator


class Clock:
    """Time that passes only when somebody says so, in nanoseconds."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        """Read it."""
        return self.now

    def work(self, time: int) -> None:
        """Let time pass."""
        self.now += time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def mark(clock: Clock) -> Profiled:
    """A recorder of its own, in virtual time, that is on."""
    recorder = Profiled(clock=clock)
    recorder.enable()
    return recorder


def tallies_of(recorder: Profiled) -> dict[str, tuple[int, int, int]]:
    """Calls, total and own time of each region, nanoseconds."""
    return {name: (t.calls, t.total, t.own) for name, t in recorder.tallies().items()}


# --- what can be marked ------------------------------------------------------------------------


def test_off_it_records_nothing(clock: Clock) -> None:
    """Until it is enabled, and again once it is disabled, calls pass through and leave no trace."""
    recorder = Profiled(clock=clock)

    @recorder
    def double(x: int) -> int:
        return 2 * x

    assert double(2) == 4
    recorder.enable()
    assert double(3) == 6
    recorder.disable()
    with recorder("block"):
        assert double(4) == 8

    assert [calls for calls, _, _ in tallies_of(recorder).values()] == [1]


def test_functions_methods_and_blocks_are_marked(mark: Profiled, clock: Clock) -> None:
    """A plain function, the three kinds of methods, a partial and a block are each one region."""

    class Thing:
        @mark("method")
        def method(self) -> None:
            clock.work(1)

        @mark("static")
        @staticmethod
        def static() -> None:
            clock.work(2)

        @mark("class")
        @classmethod
        def of_class(cls) -> type:
            clock.work(3)
            return cls

    Thing().method()
    Thing.static()
    assert Thing.of_class() is Thing
    mark("partial")(functools.partial(clock.work, 4))()
    with mark("block"):
        clock.work(5)

    assert {name: total for name, (_, total, _) in tallies_of(mark).items()} == {
        "method": 1,
        "static": 2,
        "class": 3,
        "partial": 4,
        "block": 5,
    }


def test_a_marked_function_looks_like_itself(mark: Profiled) -> None:
    """Its name, signature, docstring and kind stay: frameworks ask for them."""

    async def fetch(url: str, *, patience: float = 1.0) -> str:
        """Fetch it."""
        return f"{url}{patience}"

    async def stream() -> AsyncIterator[int]:
        yield 1

    def steps() -> Iterator[int]:
        yield 1

    result = mark(fetch)
    assert inspect.iscoroutinefunction(result)
    assert inspect.signature(result) == inspect.signature(fetch)
    assert (result.__name__, result.__doc__) == ("fetch", "Fetch it.")
    assert inspect.isasyncgenfunction(mark(stream))
    assert inspect.isgeneratorfunction(mark(steps))


def _every_kind(a: int, /, b: int = 2, *rest: int, c: int, d: int = 4, **named: int) -> tuple[Any, ...]:
    return a, b, rest, c, d, named


def _by_keyword(a: int, *, b: int = 7) -> tuple[int, int]:
    return a, b


def _one(x: int) -> int:
    return x


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize(
    ("function", "args", "kwargs"),
    [
        (_every_kind, (1,), {"c": 3}),
        (_every_kind, (1, 5, 6, 7), {"c": 3, "d": 8, "e": 9}),
        (_every_kind, (), {"a": 1, "c": 3}),
        (_by_keyword, (), {"a": 1}),
        (_by_keyword, (1, 2), {}),
        (_one, (3,), {}),
        (_one, (), {"x": 4}),
        (_one, (3, 4), {}),
        (max, (3, 4), {}),
        (functools.partial(_by_keyword, 1), (), {"b": 3}),
        (lambda _profiled_recorder: _profiled_recorder, (5,), {}),
    ],
)
def test_a_marked_function_takes_what_it_took(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, enabled: bool
) -> None:
    """Each kind of parameter gets its argument or its default; a wrong call is refused in the same words."""
    recorder = Profiled()
    if enabled:
        recorder.enable()
    marked = recorder("region")(function)

    def outcome(of: Any) -> Any:
        try:
            return of(*args, **kwargs)
        except TypeError as error:
            return str(error)

    assert outcome(marked) == outcome(function)


def test_a_region_is_named_by_module_and_place(mark: Profiled) -> None:
    """Two functions of one name in different modules are told apart; those of the script need no module."""

    def inner() -> None:
        """Do nothing."""

    inner.__module__ = "package.module"
    mark(inner)()
    inner.__module__ = "__main__"
    mark(inner)()

    place = "test_a_region_is_named_by_module_and_place.inner"
    assert list(tallies_of(mark)) == [f"package.module.{place}", place]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [(int, "not the class int"), (SimpleNamespace(), "not an object of SimpleNamespace"), (3, "of int")],
)
def test_what_is_no_function_is_refused(mark: Profiled, wrong: Any, says: str) -> None:
    """A class, an object or a number is told what to mark instead."""
    with pytest.raises(RequestError, match=says):
        mark(wrong)


def test_a_block_without_a_name_is_refused(mark: Profiled) -> None:
    """The sentence shows how to give one."""
    with pytest.raises(RequestError, match=r'with profiled\("name"\)'), mark():
        pass


def test_a_misspelt_memory_is_refused(mark: Profiled) -> None:
    """The sentence lists the choices, and says when a GPU is watched: there is no word for that."""
    for wrong in ("proces", "gpu"):
        with pytest.raises(RequestError, match=rf"by '{wrong}'; give .* 'python', 'process'.* GPU"):
            mark("x", memory=wrong)  # type: ignore[call-overload]


# --- time ----------------------------------------------------------------------------------------


def test_own_time_is_without_the_regions_within(mark: Profiled, clock: Clock) -> None:
    """The whole of the inner ones is taken off the outer one, at each level."""
    with mark("outer"):
        clock.work(1)
        for _ in range(3):
            with mark("middle"):
                clock.work(10)
                with mark("inner"):
                    clock.work(100)

    assert tallies_of(mark) == {"inner": (3, 300, 300), "middle": (3, 330, 30), "outer": (1, 331, 1)}


def test_recursion_counts_time_once(mark: Profiled, clock: Clock) -> None:
    """Each call is a sample, but the total is that of the outermost ones; so it is through another region."""

    @mark("down")
    def down(n: int) -> None:
        clock.work(1)
        if n:
            with mark("between"):
                down(n - 1)

    down(3)

    assert tallies_of(mark) == {"down": (4, 4, 4), "between": (3, 3, 0)}
    assert sorted(mark.tallies()["down"].kept) == [1, 2, 3, 4]


def test_an_exception_ends_a_call(mark: Profiled, clock: Clock) -> None:
    """What raises is counted and raised, and what comes after is not taken to lie within it."""

    @mark("fails")
    def fails() -> None:
        clock.work(2)
        raise LookupError("none")

    with pytest.raises(LookupError, match="none"):
        fails()
    with pytest.raises(LookupError, match="none"), mark("block"):
        fails()
    with mark("after"):
        clock.work(1)

    assert tallies_of(mark) == {"fails": (2, 4, 4), "block": (1, 2, 0), "after": (1, 1, 1)}


def test_switching_within_a_call_does_no_harm(mark: Profiled, clock: Clock) -> None:
    """A block that began while it was off is not counted, one that began while it was on is."""
    with mark("on at first"):
        clock.work(1)
        mark.disable()
        with mark("off at first"):
            mark.enable()
            clock.work(2)

    assert tallies_of(mark) == {"on at first": (1, 3, 3)}


def test_a_mark_that_is_kept_follows_the_switch(clock: Clock) -> None:
    """A mark made before recording begins records once it has begun, and lets errors pass either way."""
    recorder = Profiled(clock=clock)

    def fail() -> None:
        clock.work(2)
        raise ZeroDivisionError

    kept, watched = recorder("kept"), recorder("watched", memory="process")
    for block in (kept, watched):
        for switch in (recorder.disable, recorder.enable, recorder.disable):
            switch()
            with pytest.raises(ZeroDivisionError), block:
                fail()

    assert tallies_of(recorder) == {"kept": (1, 2, 2), "watched": (1, 2, 2)}


def test_a_block_has_one_mark_for_each_way_to_record_it(mark: Profiled) -> None:
    """It is made once, however often the block is run."""
    memory = mark("step", memory="process")
    assert mark("step", memory="process") is memory
    assert mark("step") is mark("step")
    assert mark("step") is not memory


def test_a_mark_is_used_within_itself(mark: Profiled, clock: Clock) -> None:
    """One mark that is entered twice gives two calls, of which the outer one has the time."""
    block = mark("block")
    with block:
        clock.work(1)
        with block:
            clock.work(2)

    assert tallies_of(mark) == {"block": (2, 3, 3)}


# --- generators and coroutines -------------------------------------------------------------------


def test_a_generator_is_counted_while_it_runs(mark: Profiled, clock: Clock) -> None:
    """What the consumer does between two items is in no call; what it sends and is given comes through."""

    @mark("steps")
    def steps() -> Generator[int, str, list[str]]:
        got: list[str] = []
        for item in range(3):
            clock.work(10)
            got.append((yield item))
        return got

    made = steps()
    assert next(made) == 0
    clock.work(1000)
    assert made.send("a") == 1
    assert made.send("b") == 2
    with pytest.raises(StopIteration) as over:
        made.send("c")

    assert over.value.value == ["a", "b", "c"]
    assert tallies_of(mark) == {"steps": (1, 30, 30)}


def test_a_generator_sees_what_is_thrown_and_its_end(mark: Profiled, clock: Clock) -> None:
    """An exception thrown in is seen inside; one that is closed early is counted as far as it came."""

    @mark("steps")
    def steps() -> Iterator[str]:
        try:
            yield "first"
        except KeyError:
            yield "caught"
        finally:
            clock.work(5)

    made = steps()
    next(made)
    assert made.throw(KeyError()) == "caught"  # type: ignore[attr-defined]
    made.close()  # type: ignore[attr-defined]
    clock.work(100)

    assert tallies_of(mark) == {"steps": (1, 5, 5)}


def test_a_generator_lies_within_whoever_advances_it(mark: Profiled, clock: Clock) -> None:
    """Each step is taken off the region that asked for it, and a block around a yield stops meanwhile."""

    @mark("steps")
    def steps() -> Iterator[int]:
        with mark("within"):
            clock.work(1)
            yield 1
            clock.work(2)

    made = steps()
    with mark("one"):
        next(made)
        clock.work(10)
    clock.work(500)
    with mark("two"):
        assert next(made, None) is None
        clock.work(20)

    assert tallies_of(mark) == {
        "one": (1, 11, 10),
        "two": (1, 22, 20),
        "within": (1, 3, 3),
        "steps": (1, 3, 0),
    }


def test_blocks_of_an_unmarked_generator_do_not_stop_others(mark: Profiled, clock: Clock) -> None:
    """A block that a generator holds open across a yield may end before one that began later."""

    def steps() -> Iterator[int]:
        with mark("held"):
            clock.work(1)
            yield 1
            clock.work(2)

    made = steps()
    next(made)
    with mark("later"):
        clock.work(10)
        next(made, None)
        clock.work(20)
    with mark("after"):
        clock.work(1)

    result = tallies_of(mark)
    assert result["later"][1] == 32
    assert result["after"] == (1, 1, 1)


def test_a_block_that_ended_out_of_turn_hides_no_region_around_it(mark: Profiled, clock: Clock) -> None:
    """Once the one that began later has ended, what follows lies in the region that is still open."""

    def steps() -> Iterator[int]:
        with mark("held"):
            clock.work(1)
            yield 1

    with mark("outer"):
        made = steps()
        next(made)
        with mark("later"):
            next(made, None)
        with mark("inner"):
            clock.work(5)

    assert tallies_of(mark)["inner"] == (1, 5, 5)
    assert tallies_of(mark)["outer"] == (1, 6, 0)


def test_coroutines_are_counted_while_they_run(mark: Profiled, clock: Clock) -> None:
    """Two tasks that wait for each other are each counted without the other, and nest by themselves."""

    @mark("task")
    async def task(time: int) -> int:
        with mark("block"):
            clock.work(time)
            await asyncio.sleep(0)
            clock.work(time)
        return time

    async def main() -> tuple[int, int]:
        return await asyncio.gather(task(1), task(100))

    assert tuple(asyncio.run(main())) == (1, 100)
    assert tallies_of(mark) == {"block": (2, 202, 202), "task": (2, 202, 0)}


def test_a_task_is_not_within_the_one_that_started_it(mark: Profiled, clock: Clock) -> None:
    """The context is copied to a new task, but the two run side by side."""

    async def child() -> None:
        with mark("child"):
            clock.work(7)

    async def main() -> None:
        with mark("parent"):
            clock.work(1)
            await asyncio.gather(child(), child())

    asyncio.run(main())

    assert tallies_of(mark) == {"child": (2, 14, 14), "parent": (1, 15, 15)}


def test_a_cancelled_coroutine_is_counted(mark: Profiled, clock: Clock) -> None:
    """It sees its cancellation, and is counted up to it."""

    @mark("wait")
    async def wait() -> None:
        try:
            clock.work(1)
            await asyncio.sleep(3600)
        finally:
            clock.work(2)

    async def main() -> None:
        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(main())

    assert tallies_of(mark) == {"wait": (1, 3, 3)}


def test_an_asynchronous_generator_is_counted_while_it_runs(mark: Profiled, clock: Clock) -> None:
    """Neither its waiting nor its consumer counts; what is sent, thrown in and closed comes through."""
    got: list[Any] = []

    @mark("stream")
    async def stream() -> AsyncIterator[int]:
        try:
            for item in range(3):
                clock.work(1)
                await asyncio.sleep(0)
                try:
                    got.append((yield item))
                except KeyError:
                    got.append("thrown")
        finally:
            clock.work(10)

    async def main() -> None:
        clock_of_others = asyncio.ensure_future(disturb())
        made: Any = stream()
        assert await made.asend(None) == 0
        assert await made.asend("a") == 1
        clock.work(1000)
        assert await made.athrow(KeyError()) == 2
        await made.aclose()
        await clock_of_others
        assert [item async for item in stream()] == [0, 1, 2]

    async def disturb() -> None:
        clock.work(500)

    asyncio.run(main())

    assert got[:2] == ["a", "thrown"]
    assert tallies_of(mark) == {"stream": (2, 26, 26)}


def test_off_steps_pass_through(clock: Clock) -> None:
    """Generators and coroutines of a recorder that is off give what they would give."""
    recorder = Profiled(clock=clock)

    @recorder
    def steps() -> Iterator[int]:
        yield from range(3)

    @recorder
    async def wait() -> int:
        await asyncio.sleep(0)
        return 4

    @recorder
    async def stream() -> AsyncIterator[int]:
        yield 5

    async def main() -> list[int]:
        return [await wait(), *[item async for item in stream()]]

    assert list(steps()) == [0, 1, 2]
    assert asyncio.run(main()) == [4, 5]
    assert tallies_of(recorder) == {}


# --- threads -------------------------------------------------------------------------------------


def test_threads_are_counted_each_by_itself() -> None:
    """No call of eight threads is lost, and none lies within a region of another thread."""
    recorder = Profiled()
    recorder.enable()
    block = recorder("block")

    @recorder("work")
    def work() -> None:
        with block:
            pass

    def many() -> None:
        for _ in range(500):
            work()

    with recorder("main"):
        threads = [threading.Thread(target=many) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert recorder.tallies()["work"].calls == recorder.tallies()["block"].calls == 4000
    assert recorder.tallies()["main"].nested_calls == 0
    assert recorder.tallies()["work"].own >= 0


def test_a_call_in_the_midst_of_counting_is_counted(
    mark: Profiled, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a finaliser, which may run at any moment: each call counts once."""

    @mark("work")
    def work() -> None:
        clock.work(1)

    add = trace_regions.RegionTally.add

    def interrupted(tally: trace_regions.RegionTally, calls: Any) -> None:
        for _ in range(200 if not tally.calls else 0):
            work()
        add(tally, calls)

    monkeypatch.setattr(trace_regions.RegionTally, "add", interrupted)
    for _ in range(100):
        work()

    assert tallies_of(mark) == {"work": (300, 300, 300)}


def test_a_copied_context_makes_no_parent(mark: Profiled, clock: Clock) -> None:
    """What runs in a thread in a copy of our context is beside us, not within."""

    @mark("work")
    def work() -> None:
        clock.work(5)

    async def main() -> None:
        with mark("outer"):
            await asyncio.to_thread(work)

    asyncio.run(main())

    assert mark.tallies()["outer"].nested_calls == 0
    assert tallies_of(mark)["outer"] == (1, 5, 5)


def test_names_without_end_take_no_room_without_end(mark: Profiled) -> None:
    """Beyond a bound, names that are new go under one."""
    for number in range(MOST_REGIONS + 5):
        with mark(f"request {number}"):
            pass

    assert len(tallies_of(mark)) == MOST_REGIONS + 1
    assert tallies_of(mark)[OTHERS][0] == 5


# --- memory and devices -----------------------------------------------------------------------------


@pytest.fixture
def real() -> Iterator[Profiled]:
    """A recorder in real time; it leaves no tracing behind."""
    recorder = Profiled()
    recorder.enable()
    yield recorder
    recorder.disable()
    assert not tracemalloc.is_tracing()


def test_memory_of_python_is_what_was_allocated(real: Profiled) -> None:
    """What is made, freed and kept is seen so; the peak of an outer call holds that of the inner."""
    kept: list[bytearray] = []

    @real("inner", memory=True)
    def inner() -> None:
        large = bytearray(1_000_000)
        kept.append(bytearray(250_000))
        del large

    @real("outer", memory="python")
    def outer() -> None:
        held = bytearray(500_000)
        inner()
        del held

    outer()
    result = real.result()

    assert result["allocated@inner [python]"] == pytest.approx(1_250_000, rel=0.05)
    assert result["freed@inner [python]"] == pytest.approx(1_000_000, rel=0.05)
    assert result["allocated_peak@inner [python]"] == pytest.approx(1_250_000, rel=0.05)
    assert result["allocated_peak@outer [python]"] == pytest.approx(1_750_000, rel=0.05)
    assert [doubt.code for doubt in result.doubts] == ["traced-memory"]


def test_memory_that_was_traced_already_stays_traced(real: Profiled) -> None:
    """Whoever traces beside us goes on doing so."""
    tracemalloc.start()
    try:
        with real("block", memory=True):
            pass
        real.disable()
        assert tracemalloc.is_tracing()
    finally:
        tracemalloc.stop()


def test_memory_of_the_process_is_a_difference(real: Profiled, monkeypatch: pytest.MonkeyPatch) -> None:
    """The resident size knows what came and went; it has no peak where the kernel lets none be reset."""
    monkeypatch.setattr(memory_meters, "_can_forget_peak", lambda: False)
    sizes = iter((1000, 1800, 1800, 1500))
    monkeypatch.setattr(process_tree, "resident_size", lambda _pid: next(sizes))
    block = real("block", memory="process")
    with block:
        pass
    with block:
        pass
    result = real.result()

    assert result["allocated@block [process]"] == 400
    assert result["freed@block [process]"] == 150
    assert result.find("allocated_peak", "block [process]") is None
    assert not tracemalloc.is_tracing()


class Cuda:
    """torch.cuda with one device, whose books are kept by hand."""

    def __init__(self) -> None:
        self.current = self.peak = self.allocated = 0
        self.waits = 0
        self.capturing = False

    def take(self, size: int) -> None:
        """Allocate."""
        self.current += size
        self.allocated += size
        self.peak = max(self.peak, self.current)

    def give(self, size: int) -> None:
        """Free."""
        self.current -= size

    def is_initialized(self) -> bool:
        """Say yes."""
        return True

    def is_current_stream_capturing(self) -> bool:
        """Say what is set."""
        return self.capturing

    def synchronize(self) -> None:
        """Count."""
        self.waits += 1

    def device_count(self) -> int:
        """Say one."""
        return 1

    def reset_peak_memory_stats(self, device: int) -> None:
        """Forget the peak."""
        assert device == 0
        self.peak = self.current

    def memory_stats_as_nested_dict(self, device: int) -> dict[str, Any]:
        """Open the books."""
        assert device == 0
        stats = {"current": self.current, "peak": self.peak, "allocated": self.allocated}
        return {"allocated_bytes": {"all": stats}}


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    """A torch that has one CUDA device in use."""
    fake = Cuda()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=fake))
    return fake


def test_memory_of_a_device_is_by_its_allocator(mark: Profiled, cuda: Cuda) -> None:
    """Allocated, freed and peak are exact, also of a call around another that asks for its own peak."""
    cuda.take(50)

    @mark("inner", memory="process")
    def inner() -> None:
        cuda.take(200)
        cuda.give(150)

    @mark("outer", memory="process")
    def outer() -> None:
        cuda.take(1000)
        cuda.give(1000)
        inner()

    outer()
    result = mark.result()

    assert [result[f"{m}@inner [cuda:0]"] for m in ("allocated", "freed", "allocated_peak")] == [
        200,
        150,
        200,
    ]
    assert [result[f"{m}@outer [cuda:0]"] for m in ("allocated", "freed", "allocated_peak")] == [
        1200,
        1150,
        1000,
    ]


@pytest.mark.skipif(not os.access(f"/proc/{os.getpid()}/clear_refs", os.W_OK), reason="no peak to reset")
def test_memory_that_a_process_gave_back_is_its_peak(real: Profiled) -> None:
    """Of the call that took it and of those around; not of the one that comes after."""
    inner, outer = real("inner", memory="process"), real("outer", memory="process")
    with outer:
        with inner:
            np.ones(40_000_000 // 8)
        with real("after", memory="process"):
            pass
    result = real.result()

    for name in ("inner", "outer"):
        assert result[f"allocated_peak@{name} [process]"] == pytest.approx(40e6, rel=0.2)
    assert (result["allocated_peak@after [process]"] or 0) < 20e6


def test_looking_at_memory_takes_no_time_of_those_around(
    mark: Profiled, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What asking for memory takes is in no region: neither in that of the call nor in any around it."""

    def resident(_pid: int) -> int:
        clock.work(1000)
        return 0

    monkeypatch.setattr(process_tree, "resident_size", resident)
    small = mark("small", memory="process")

    @small
    def steps() -> Iterator[None]:
        clock.work(1)
        yield
        clock.work(1)

    with mark("outer"):
        clock.work(10)
        with mark("inner"):
            list(steps())
            clock.work(100)

    assert tallies_of(mark) == {"small": (1, 2, 2), "inner": (1, 102, 100), "outer": (1, 112, 10)}


def test_memory_of_a_generator_is_that_of_its_steps(mark: Profiled, cuda: Cuda) -> None:
    """What the consumer takes between two items is not the generator's."""

    @mark("steps", memory="process")
    def steps() -> Iterator[None]:
        cuda.take(10)
        yield
        cuda.take(20)

    for _ in steps():
        cuda.take(1000)
    result = mark.result()

    assert result["allocated@steps [cuda:0]"] == 30
    assert result["calls@steps"] == 1


def test_a_device_is_waited_for_on_request(mark: Profiled, cuda: Cuda) -> None:
    """Once before and once after a call that asks for it; never while a graph is being captured."""
    with mark("plain"):
        pass
    assert cuda.waits == 0
    with mark("synchronised", sync=True):
        assert cuda.waits == 1
    assert cuda.waits == 2
    cuda.capturing = True
    with mark("captured", sync=True):
        pass
    assert cuda.waits == 2


def test_other_devices_are_waited_for(mark: Profiled, monkeypatch: pytest.MonkeyPatch) -> None:
    """XPU where it is in use, and MPS where it is available."""
    waits: list[str] = []
    library = SimpleNamespace(is_initialized=lambda: True, synchronize=lambda: waits.append("xpu"))
    mps = SimpleNamespace(synchronize=lambda: waits.append("mps"))
    backends = SimpleNamespace(mps=SimpleNamespace(is_available=lambda: True))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(xpu=library, mps=mps, backends=backends))
    with mark("block", sync=True):
        pass

    assert waits == ["xpu", "mps"] * 2


def test_a_forward_is_marked(mark: Profiled) -> None:
    """A module whose forward is marked gives the same outputs, and synchronises where there is nothing to."""
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
        @mark("forward", sync=True, memory="process")
        def forward(self, x: Any) -> Any:
            return 2 * x

    assert Net()(torch.ones(3)).tolist() == [2.0, 2.0, 2.0]
    assert tallies_of(mark)["forward"][0] == 1


# --- what is told ------------------------------------------------------------------------------------


def test_the_result_answers_queries(mark: Profiled, clock: Clock) -> None:
    """Regions are scopes: numbers, bounds and percentiles below their floor are as in any Result."""
    for _ in range(20):
        with mark("load"):
            clock.work(2_000_000)
    result = mark.result(name="mine")

    assert result.name == "mine"
    assert result["latency.mean@load"] == pytest.approx(0.002)
    assert result["calls@load"] == 20
    assert result.ask("latency.p99@load").value is None
    assert result["latency.p99.raw@load"] == pytest.approx(0.002)
    assert result.judge("latency.max@load <= 1ms").verdict == "broken"
    mark.reset()
    assert mark.result().measurements == ()


def test_the_report_fits_80_columns(mark: Profiled, clock: Clock) -> None:
    """Long names are cut at their beginning; what has too few calls is marked, and explained."""
    for name in ("a" * 100 + ".end_of_a_name", "short"):
        for _ in range(15):
            with mark(name):
                clock.work(123_456)
    report = mark.report()

    assert max(map(len, report.splitlines())) <= 80
    assert "end_of_a_name" in report
    assert "~123 us" in report
    assert "too few independent calls" in " ".join(report.split())
    assert "called no code that is marked" in Profiled().report()


def test_noting_down_has_a_cost_that_is_told() -> None:
    """It is measured where it is asked for, and is no more than some microseconds."""
    assert 0 < recording_cost(Profiled()) < 1e-3


def test_marking_imports_no_framework() -> None:
    """A program that only marks its functions pays for the standard library and little of the core."""
    code = (
        "import sys\nfrom modeldyno import profiled\n"
        "profiled(lambda: None)()\n"
        "print([m for m in ('numpy', 'msgspec', 'click', 'asyncio', 'psutil') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
    assert isinstance(profiled, Profiled)
    assert not profiled.on


# --- the end of the program --------------------------------------------------------------------


def ended(code: str) -> str:
    """Run a program, and return what it prints to standard error."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr


def test_a_program_that_never_said_whether_to_record_hears_of_it_once() -> None:
    """In one sentence at its end, however much is marked."""
    output = ended("from modeldyno import profiled\nfor name in 'ab':\n    with profiled(name): pass")

    assert output.count("modeldyno: code is marked with profiled, and nothing was recorded") == 1
    assert output.count("\n") == 1
    assert "modeldyno run SCRIPT" in output


@pytest.mark.parametrize("statement", ["profiled.disable()", "profiled.enable()"])
def test_a_program_that_did_say_ends_in_silence(statement: str) -> None:
    """Off is a choice, and what is on is read by the program."""
    assert ended(f"from modeldyno import profiled\nprofiled(lambda: 0)()\n{statement}") == ""


def test_check_time_is_on_at_once_and_prints_by_itself() -> None:
    """Functions and blocks, in the tables of the other marks, without a further line."""
    output = ended(
        "from modeldyno import profiled\nfrom modeldyno.regions import check_time\n"
        "@check_time\ndef forward(): pass\n"
        "for _ in range(3): forward()\n"
        "with check_time('step', sync=True): pass\n"
        "assert profiled.result()['calls@forward'] == 3\n"
    )
    rows = [line.split()[:2] for line in output.splitlines()]

    assert ["forward", "3"] in rows
    assert ["step", "1"] in rows


def test_check_time_that_marks_what_is_never_called_prints_nothing() -> None:
    """There are no tables without rows."""
    assert ended("from modeldyno.regions import check_time\n@check_time\ndef forward(): pass") == ""


def test_a_forked_child_leaves_the_last_word_to_its_parent(capsys: pytest.CaptureFixture[str]) -> None:
    """Its copy of the marks is not its own."""
    recorder = Profiled(at_exit=AtExit.REMIND)
    recorder.leave(process=0)
    assert capsys.readouterr().err == ""
    recorder.leave(process=os.getpid())
    assert "nothing was recorded" in capsys.readouterr().err
