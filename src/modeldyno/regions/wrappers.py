"""Functions, generators and coroutines that record their calls, and otherwise do what they did."""

from __future__ import annotations

import inspect
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from modeldyno.regions.frames import Frame

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator

    from modeldyno.regions.recorder import Mark, Profiled


def function(recorder: Profiled, mark: Mark, name: str, target: Callable[..., Any]) -> Callable[..., Any]:
    """Record each call of a function."""

    @_like(target)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not recorder.on:
            return target(*args, **kwargs)
        frame = Frame(name)
        recorder.begin(mark, frame)
        try:
            return target(*args, **kwargs)
        finally:
            recorder.end(mark, frame)

    return wrapper


def generator(recorder: Profiled, mark: Mark, name: str, target: Callable[..., Any]) -> Callable[..., Any]:
    """Record a generator: one call, in the steps that it is asked for."""

    @_like(target)
    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        steps = target(*args, **kwargs)
        if not recorder.on:
            return (yield from steps)
        frame = Frame(name)
        try:
            return (yield from _driven(recorder, mark, frame, steps))
        finally:
            recorder.note(frame)

    return wrapper


def coroutine(recorder: Profiled, mark: Mark, name: str, target: Callable[..., Any]) -> Callable[..., Any]:
    """Record a coroutine: one call, in the steps between its waits."""

    @_like(target)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        steps = target(*args, **kwargs)
        if not recorder.on:
            return await steps
        frame = Frame(name)
        try:
            return await _Driven(recorder, mark, frame, steps)
        finally:
            recorder.note(frame)

    return wrapper


def stream(recorder: Profiled, mark: Mark, name: str, target: Callable[..., Any]) -> Callable[..., Any]:
    """Record an asynchronous generator: one call, in steps."""

    @_like(target)
    async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        items = target(*args, **kwargs)
        frame = Frame(name) if recorder.on else None

        async def timed(step: Any) -> Any:
            return await (step if frame is None else _Driven(recorder, mark, frame, step))

        try:
            step = items.asend(None)
            while True:
                try:
                    item = await timed(step)
                except StopAsyncIteration:
                    return
                try:
                    sent = yield item
                except GeneratorExit:
                    await timed(items.aclose())
                    raise
                except BaseException as thrown:  # noqa: BLE001 - the stream is to see it, whatever it is
                    step = items.athrow(thrown)
                else:
                    step = items.asend(sent)
        finally:
            if frame is not None:
                recorder.note(frame)

    return wrapper


KINDS: tuple[tuple[Callable[[Any], bool], Callable[..., Any]], ...] = (
    (inspect.iscoroutinefunction, coroutine),
    (inspect.isasyncgenfunction, stream),
    (inspect.isgeneratorfunction, generator),
)
"""What runs in steps, and how it is decorated."""


def _driven(recorder: Profiled, mark: Mark, frame: Frame, steps: Any) -> Generator[Any, Any, Any]:
    """Pass every step on to a generator or a coroutine; the clock runs only meanwhile."""
    sent: Any = None
    thrown: BaseException | None = None
    while True:
        recorder.begin(mark, frame)
        try:
            given = steps.send(sent) if thrown is None else steps.throw(thrown)
        except StopIteration as over:
            return over.value
        finally:
            recorder.pause(mark, frame)
        sent = thrown = None
        try:
            sent = yield given
        except GeneratorExit:
            recorder.begin(mark, frame)
            try:
                steps.close()
            finally:
                recorder.pause(mark, frame)
            raise
        except BaseException as error:  # noqa: BLE001 - the steps are to see it, whatever it is
            thrown = error


class _Driven:
    """The same, to be awaited."""

    __slots__ = ("_given",)

    def __init__(self, *given: Any) -> None:
        self._given = given

    def __await__(self) -> Generator[Any, Any, Any]:
        return _driven(*self._given)


def _like(target: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return wraps(target.func if isinstance(target, partial) else target)
