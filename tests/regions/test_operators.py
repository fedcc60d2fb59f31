from __future__ import annotations

import sys
import time
from dataclasses import replace
from threading import Thread
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno import Profiled
from modeldyno.base.errors import RequestError
from modeldyno.base.report.blocks import Table
from modeldyno.base.result.trace_data import EventKind
from modeldyno.engine.trace.dataflow import DataFlow, FlowStep
from modeldyno.engine.trace.op_events import WITHIN, Occurrence
from modeldyno.profiling import views
from modeldyno.regions import Schedule, operators
from modeldyno.regions.operators import OperatorRecorder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modeldyno.base.result.result import Result

ADD = Occurrence(name="aten::add", scope="step", self_time=1e-6, total_time=3e-6)
FILL = Occurrence(name="aten::fill_", scope="step", self_time=2e-6, total_time=2e-6, parent=0)


@pytest.fixture
def began(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let a framework run two operators a call; give the names of the blocks that were begun."""
    names: list[str] = []

    def start(name: str) -> Callable[[], Callable[[], tuple[Occurrence, ...]]]:
        names.append(name)
        return lambda: lambda: (ADD, FILL)

    monkeypatch.setattr(operators, "_start", start)
    monkeypatch.setattr(operators, "_follow", lambda: None)
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    return names


@pytest.fixture
def mark() -> Profiled:
    recorder = Profiled()
    recorder.enable()
    return recorder


def test_the_first_ten_calls_are_recorded(mark: Profiled, began: list[str]) -> None:
    """The others run at full speed; a row is of one call."""
    for _ in range(12):
        with mark("step", ops=True):
            pass
    result = mark.result()
    assert result.activity is not None

    assert began == ["step"] * 10
    ran = [row for row in result.activity.executed if row.kind is EventKind.OPERATOR]
    assert [(row.name, row.calls) for row in ran] == [
        ("aten::fill_", 1),
        ("aten::add", 1),
    ]
    assert result.activity.executed[0].self_time == pytest.approx(2e-6)
    assert result["calls@step"] == 12
    assert "traced-operators" in {doubt.code for doubt in result.doubts}


def test_a_schedule_says_which_calls_are_recorded_and_kept(mark: Profiled, began: list[str]) -> None:
    """Of each round of four: one is left alone, one warms up, two are kept."""

    @mark("step", ops=Schedule(wait=1, warmup=1, active=2, repeat=2))
    def step() -> None:
        """Do nothing."""

    for _ in range(20):
        step()

    assert len(began) == 6
    assert mark._operators is not None
    assert mark._operators.regions["step"].kept == 4


def test_a_call_within_a_recorded_one_is_a_part_of_it(began: list[str]) -> None:
    """It has a range, and no rows of its own; afterwards it is recorded by itself."""
    recorder = OperatorRecorder()
    outer, inner = recorder.begin("outer", Schedule(active=1)), recorder.begin("inner", Schedule())
    assert inner is not None
    assert outer is not None
    inner()
    outer()
    alone = recorder.begin("inner", Schedule())
    assert alone is not None
    alone()

    assert began == ["outer", "inner", "inner"]
    assert {name: region.kept for name, region in recorder.regions.items()} == {"outer": 1, "inner": 1}


def test_callers_are_those_of_the_same_call(began: list[str]) -> None:
    """What is kept of several calls lies in one list."""
    recorder = OperatorRecorder()
    for _ in range(2):
        end = recorder.begin("step", Schedule())
        assert end is not None
        end()
    watched = recorder.regions["step"].watched()

    assert [(one.call, one.parent) for one in watched.occurrences] == [(0, None), (0, 0), (1, None), (1, 2)]
    assert len(watched.times) == len(began) == 2


def test_calls_are_read_when_they_are_asked_for(
    mark: Profiled, monkeypatch: pytest.MonkeyPatch, began: list[str]
) -> None:
    """Reading takes longer than recording: only the first is read at once, as it tells how large they are."""
    read: list[int] = []

    def start(_name: str) -> Callable[[], Callable[[], tuple[Occurrence, ...]]]:
        number = len(began)
        began.append("step")

        def occurrences() -> tuple[Occurrence, ...]:
            read.append(number)
            return ADD, FILL

        return lambda: occurrences

    monkeypatch.setattr(operators, "_start", start)
    for _ in range(4):
        with mark("step", ops=True):
            pass
    assert read == [0]
    mark.result()
    assert read == [0, 1, 2, 3]
    monkeypatch.setattr(operators, "MOST_UNREAD", 5)
    for _ in range(4):
        with mark("step", ops=True):
            pass

    assert read == [0, 1, 2, 3, 4, 5, 6]


def test_no_more_is_recorded_when_there_is_much(monkeypatch: pytest.MonkeyPatch, began: list[str]) -> None:
    """Memory stays bounded."""
    monkeypatch.setattr(operators, "MOST_EVENTS", 3)
    recorder = OperatorRecorder()
    ends = [end() for _ in range(5) if (end := recorder.begin("step", Schedule())) is not None]

    assert len(ends) == len(began) == 2


def test_without_torch_nothing_is_recorded(mark: Profiled, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with mark("step", ops=True):
        pass
    result = mark.result()

    assert result.activity is None
    assert result["calls@step"] == 1


@pytest.mark.parametrize("ops", [Schedule(active=0), Schedule(wait=-1), Schedule(repeat=0), "all"])
def test_a_schedule_that_records_nothing_is_refused(mark: Profiled, ops: Schedule) -> None:
    """Before anything runs."""
    with pytest.raises(RequestError, match=r"records nothing|no schedule"):
        mark("step", ops=ops)


def test_operators_of_torch_are_told_by_region(mark: Profiled) -> None:
    """A block in a recorded one has its own; the tables are those of a profile."""
    torch = pytest.importorskip("torch")
    weight = torch.ones(8, 8)
    for _ in range(2):
        with mark("outer", ops=True):
            total = torch.relu(weight)
            with mark("inner", ops=True):
                total = total @ weight
    result = mark.result()
    assert result.activity is not None
    rows = {(row.scope, row.name): row.calls for row in result.activity.executed}
    titles = [block.title for block in views.blocks(result) if isinstance(block, Table)]

    assert rows["outer", "aten::relu"] == 1
    assert rows["inner", "aten::mm"] == 1
    assert ("outer", "aten::mm") not in rows
    assert any(title.startswith("Slowest operators by region") for title in titles)


PLAIN = FlowStep(name="Tensor.add", line="train.py:3", scope="Net.0", time=2e-6)


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch, began: list[str]) -> list[str]:
    """Let the framework follow the data flow; give the number of calls for each time that it did."""
    calls: list[str] = []

    def follow() -> Callable[[], DataFlow | None]:
        calls.append(str(len(began)))
        return lambda: DataFlow(steps=(PLAIN, replace(PLAIN, scope=""), replace(PLAIN, line="")))

    monkeypatch.setattr(operators, "_follow", follow)
    return calls


def test_the_first_kept_call_is_followed_and_counts_only_if_it_is_alone(followed: list[str]) -> None:
    """The operators of the others are not slowed down by it."""
    recorder = OperatorRecorder()
    kept = []
    for _ in range(3):
        end = recorder.begin("step", Schedule(warmup=1))
        assert end is not None
        end()
        kept.append(recorder.regions["step"].kept)

    assert followed == ["2"]
    assert kept == [0, 1, 1]
    assert [step.scope for step in recorder.regions["step"].flow.steps] == [  # type: ignore[union-attr]
        "step > Net.0", "step", "step > Net.0",
    ]  # fmt: skip


def test_lines_of_the_users_code_are_rows_of_the_result(mark: Profiled, followed: list[str]) -> None:
    """With the time of what runs there; steps of a library have none."""
    with mark("step", ops=True):
        pass
    result = mark.result()
    assert result.activity is not None
    assert followed == ["1"]
    assert result.activity.wastes == ()
    lines = [row for row in result.activity.executed if row.kind is EventKind.LINE and row.calls]
    assert [(row.name, row.scope, row.calls, row.self_time) for row in lines] == [
        ("train.py:3", "step > Net.0", 1, 2e-6), ("train.py:3", "step", 1, 2e-6),
    ]  # fmt: skip
    assert ("step", "train.py:3", "2", "4.00 us") in [row[:4] for row in line_table(result).rows]


def line_table(result: Result) -> Table:
    """Return the table of lines."""
    tables = (block for block in views.blocks(result) if isinstance(block, Table))
    return next(table for table in tables if table.title.startswith("Wall time by line"))


def test_wall_time_is_told_by_line_with_what_is_outside_operators(mark: Profiled, began: list[str]) -> None:
    """Whatever it is that takes the time: here nothing of the framework."""
    assert began == []
    with mark("step", ops=True):
        time.sleep(0.1)
    *lines, outside = line_table(mark.result()).rows
    number = sys._getframe().f_code.co_firstlineno + 4
    assert ("step", f"test_operators.py:{number}", "—", "—") in [row[:4] for row in lines]
    assert (*outside[:2], outside[5]) == ("step", "outside operators", "100%")


def test_code_that_may_be_suspended_is_not_followed(mark: Profiled, followed: list[str]) -> None:
    """What runs in between would be recorded too."""

    def steps() -> Iterator[int]:
        with mark("block", ops=True):
            yield 1

    assert [*steps()] == [1]
    assert followed == []
    assert mark.result().activity.wastes is None  # type: ignore[union-attr]


class TestTorch:
    """The real profiler."""

    @pytest.fixture
    def torch(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        """Skip without torch; forget that this process has compiled code, which is not followed."""
        torch = pytest.importorskip("torch")
        compiler = sys.modules.get("torch._dynamo.utils")
        if compiler is not None:
            monkeypatch.setattr(compiler, "counters", {})
        return torch

    def test_operators_are_those_of_modules_and_copies_those_of_lines(
        self, mark: Profiled, torch: Any
    ) -> None:
        """A module in a region has a place of its own; a needless copy is found in any code."""
        net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())

        @mark("step", ops=True)
        def step(x: Any) -> Any:
            return net(x).t().contiguous().t().contiguous().sum()

        for _ in range(3):
            step(torch.ones(4, 8))
        activity = mark.result().activity
        assert activity is not None
        assert {row.scope for row in activity.executed if row.name == "aten::addmm"} == {
            "step > Sequential.0"
        }
        assert {row.scope for row in activity.executed if row.name == "aten::sum"} == {"step"}
        assert "PythonDispatchMode" not in {row.name for row in activity.executed}
        (waste,) = activity.wastes or ()
        assert (waste.kind, waste.name, waste.scope) == ("layout", "Tensor.contiguous", "step")
        assert waste.line.startswith("test_operators.py:")

    def test_blocks_of_record_function_are_regions_of_a_followed_script(
        self, mark: Profiled, torch: Any
    ) -> None:
        """Also decorated functions, but not those of torch itself, and no longer when it has ended."""
        net = torch.nn.Linear(8, 8)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        record_function = torch.profiler.record_function

        @record_function("loss")  # type: ignore[untyped-decorator]
        def loss(values: Any) -> Any:
            return values.sum()

        end = mark.follow_script("work.py")
        for _ in range(3):
            with record_function("forward"):
                values = net(torch.ones(1, 8))
            loss(values).backward()
            optimizer.step()
        end()
        with record_function("after"):
            pass
        result = mark.result()
        calls = {m.scope: m.value for m in result.measurements if m.metric == "calls"}

        assert calls == {"work.py": 1, "forward": 3, "loss": 3}

    def test_a_script_without_a_mark_is_followed(self, mark: Profiled, torch: Any) -> None:
        """Its operators by their names in the code, its lines, and what it could do without."""
        net = torch.nn.Linear(8, 8)
        end = mark.follow_script("work.py")
        rows, table = torch.zeros(0, 8), torch.ones(8, 8).half()
        for _ in range(9):
            rows = torch.cat([rows, net(torch.ones(1, 8)) @ table.float()])
        mask = torch.tensor([[float(j <= i) for j in range(64)] for i in range(64)])
        filled = torch.zeros(40)
        for i in range(40):
            filled[i] = mask[0, i]
        end()
        result = mark.result()
        activity = result.activity
        assert activity is not None
        operators = {row.name: row.calls for row in activity.executed if row.kind is EventKind.OPERATOR}
        kinds = sorted((waste.kind.value, waste.scope) for waste in activity.wastes or ())

        assert (operators["torch.cat"], operators["float"]) == (9, 9)
        assert "Tensor.register_hook" not in operators
        assert kinds == [
            ("cast", "work.py"), ("element-by-element", "work.py"), ("element-by-element", "work.py"),
            ("growing-array", "work.py"), ("unused-gradient", "work.py"),
        ]  # fmt: skip
        assert result["calls@work.py"] == 1

    def test_a_region_of_a_script_that_is_followed_counts_once(self, mark: Profiled, torch: Any) -> None:
        """Its operators and lines are the script's; a region of another thread has its own."""
        end = mark.follow_script("work.py")

        @mark("step", ops=True)
        def step() -> None:
            torch.ones(4) @ torch.ones(4)

        step()
        thread = Thread(target=mark("beside", ops=True)(lambda: torch.zeros(4).sum()))
        thread.start()
        thread.join()
        end()
        result = mark.result()
        assert result.activity is not None
        executed = result.activity.executed
        assert {row.scope.partition(WITHIN)[0] for row in executed} == {"work.py", "beside"}
        assert sum(row.calls for row in executed if row.name == "matmul") == 1
        assert (result["calls@step"], result["calls@beside"]) == (1, 1)

    def test_a_gradient_that_comes_back_is_none_that_nobody_uses(self, mark: Profiled, torch: Any) -> None:
        """Also after the region has ended, as of a loss that it returns."""
        net = torch.nn.Linear(8, 1)

        @mark("loss", ops=True)
        def loss() -> Any:
            return net(torch.ones(1, 8)).sum() + net(torch.zeros(1, 8)).sum()

        value = loss()
        value.backward()
        assert mark.result().activity.wastes == ()  # type: ignore[union-attr]

    def test_a_long_script_is_followed_in_its_first_part(
        self, mark: Profiled, torch: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What lived when the flow was cut off counts as kept, as what came later is not known."""
        monkeypatch.setattr(operators, "MOST_STEPS", 8)
        end = mark.follow_script("long.py")
        x = torch.ones(4, 4)
        copies = [x.clone() for _ in range(20)]
        copies.clear()
        end()
        activity = mark.result().activity
        assert activity is not None
        assert {row.name: row.calls for row in activity.executed if row.kind is EventKind.OPERATOR} == {
            "torch.ones": 1, "clone": 8,
        }  # fmt: skip
        assert activity.wastes == ()

    def test_what_outlives_the_region_is_not_called_needless(self, mark: Profiled, torch: Any) -> None:
        """A copy that the caller gets may be changed there."""

        @mark("step", ops=True)
        def step(x: Any) -> Any:
            return x.clone()

        kept = [step(torch.ones(4, 8)) for _ in range(2)]
        assert len(kept) == 2
        assert mark.result().activity.wastes == ()  # type: ignore[union-attr]
