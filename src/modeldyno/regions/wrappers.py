"""Wrap functions, generators and coroutines so that their calls are recorded."""

from __future__ import annotations

import inspect
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Protocol

from modeldyno.regions.frames import Frame

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator


class CallRecorder(Protocol):
    """What records the calls of a region; `mark` is the region."""

    on: bool

    def begin(self, mark: Any, frame: Frame) -> None:
        """Begin or resume a call."""

    def pause(self, mark: Any, frame: Frame) -> None:
        """Suspend a call."""

    def end(self, mark: Any, frame: Frame) -> None:
        """End a call that was never suspended."""

    def note(self, frame: Frame) -> None:
        """Count a finished call."""


def wrap_function(
    recorder: CallRecorder, mark: Any, name: str, target: Callable[..., Any]
) -> Callable[..., Any]:
    """Record each call of a function."""

    @_wraps(target)
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


def wrap_generator(
    recorder: CallRecorder, mark: Any, name: str, target: Callable[..., Any]
) -> Callable[..., Any]:
    """Record a generator as one call, made of the steps between its yields."""

    @_wraps(target)
    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        steps = target(*args, **kwargs)
        if not recorder.on:
            return (yield from steps)
        frame = Frame(name)
        try:
            return (yield from _timed_steps(recorder, mark, frame, steps))
        finally:
            recorder.note(frame)

    return wrapper


def wrap_coroutine(
    recorder: CallRecorder, mark: Any, name: str, target: Callable[..., Any]
) -> Callable[..., Any]:
    """Record a coroutine as one call, made of the steps between its awaits."""

    @_wraps(target)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        steps = target(*args, **kwargs)
        if not recorder.on:
            return await steps
        frame = Frame(name)
        try:
            return await _TimedAwaitable(recorder, mark, frame, steps)
        finally:
            recorder.note(frame)

    return wrapper


def wrap_async_generator(
    recorder: CallRecorder, mark: Any, name: str, target: Callable[..., Any]
) -> Callable[..., Any]:
    """Record an asynchronous generator as one call, made of its steps."""

    @_wraps(target)
    async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        items = target(*args, **kwargs)
        frame = Frame(name) if recorder.on else None

        async def timed(step: Any) -> Any:
            return await (step if frame is None else _TimedAwaitable(recorder, mark, frame, step))

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
                except BaseException as thrown:  # noqa: BLE001 - the stream must see it, whatever it is
                    step = items.athrow(thrown)
                else:
                    step = items.asend(sent)
        finally:
            if frame is not None:
                recorder.note(frame)

    return wrapper


KINDS: tuple[tuple[Callable[[Any], bool], Callable[..., Any]], ...] = (
    (inspect.iscoroutinefunction, wrap_coroutine),
    (inspect.isasyncgenfunction, wrap_async_generator),
    (inspect.isgeneratorfunction, wrap_generator),
)
"""Predicate and wrapper for each kind that runs in steps."""


def _timed_steps(recorder: CallRecorder, mark: Any, frame: Frame, steps: Any) -> Generator[Any, Any, Any]:
    """Forward every step to a generator or coroutine, running the clock only meanwhile."""
    sent: Any = None
    thrown: BaseException | None = None
    while True:
        recorder.begin(mark, frame)
        try:
            item = steps.send(sent) if thrown is None else steps.throw(thrown)
        except StopIteration as over:
            return over.value
        finally:
            recorder.pause(mark, frame)
        sent = thrown = None
        try:
            sent = yield item
        except GeneratorExit:
            recorder.begin(mark, frame)
            try:
                steps.close()
            finally:
                recorder.pause(mark, frame)
            raise
        except BaseException as error:  # noqa: BLE001 - the steps must see it, whatever it is
            thrown = error


class _TimedAwaitable:
    """Awaitable that does the same."""

    __slots__ = ("_arguments",)

    def __init__(self, *arguments: Any) -> None:
        self._arguments = arguments

    def __await__(self) -> Generator[Any, Any, Any]:
        return _timed_steps(*self._arguments)


def _wraps(target: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return wraps(target.func if isinstance(target, partial) else target)
