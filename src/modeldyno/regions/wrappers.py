"""Wrap functions, generators and coroutines so that their calls are recorded."""

from __future__ import annotations

import inspect
from functools import lru_cache, partial, wraps
from types import FunctionType
from typing import TYPE_CHECKING, Any, Protocol, cast

from modeldyno.regions.frames import new_frame

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator

    from modeldyno.regions.frames import Frame


class CallRecorder(Protocol):
    """What records the calls of a region; `mark` is the region."""

    on: bool

    def begin(self, mark: Any, name: str) -> Frame:
        """Begin a call."""

    def end(self, frame: Frame) -> None:
        """End a call, unless it is suspended, and count it."""

    def resume(self, frame: Frame) -> None:
        """Begin or resume a call."""

    def pause(self, frame: Frame) -> None:
        """Suspend a call."""


def wrap_function(
    recorder: CallRecorder, mark: Any, name: str, target: Callable[..., Any]
) -> Callable[..., Any]:
    """Record each call of a function."""
    parameters, arguments = _signature(target)
    wrapper: Any = _compile(parameters, arguments)(recorder, recorder.begin, recorder.end, mark, name, target)
    if parameters != _ANY:
        wrapper.__defaults__, wrapper.__kwdefaults__ = target.__defaults__, target.__kwdefaults__
    return _wraps(target)(wrapper)


def wrap_generator(
    recorder: CallRecorder, mark: Any, name: str, target: Callable[..., Any]
) -> Callable[..., Any]:
    """Record a generator as one call, made of the steps between its yields."""

    @_wraps(target)
    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        steps = target(*args, **kwargs)
        if not recorder.on:
            return (yield from steps)
        frame = new_frame(name, mark)
        try:
            return (yield from _timed_steps(recorder, frame, steps))
        finally:
            recorder.end(frame)

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
        frame = new_frame(name, mark)
        try:
            return await _TimedAwaitable(recorder, frame, steps)
        finally:
            recorder.end(frame)

    return wrapper


def wrap_async_generator(
    recorder: CallRecorder, mark: Any, name: str, target: Callable[..., Any]
) -> Callable[..., Any]:
    """Record an asynchronous generator as one call, made of its steps."""

    @_wraps(target)
    async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        items = target(*args, **kwargs)
        frame = new_frame(name, mark) if recorder.on else None

        async def timed(step: Any) -> Any:
            return await (step if frame is None else _TimedAwaitable(recorder, frame, step))

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
                recorder.end(frame)

    return wrapper


KINDS: tuple[tuple[Callable[[Any], bool], Callable[..., Any]], ...] = (
    (inspect.iscoroutinefunction, wrap_coroutine),
    (inspect.isasyncgenfunction, wrap_async_generator),
    (inspect.isgeneratorfunction, wrap_generator),
)
"""Predicate and wrapper for each kind that runs in steps."""


_ANY = "*args, **kwargs"
"""Parameters that any function has, and the arguments that hand them on."""
_PREFIX = "_profiled_"
_WRAPPER = """
def make(
    _profiled_recorder, _profiled_begin, _profiled_end, _profiled_mark, _profiled_name, _profiled_target
):
    def wrapper({parameters}):
        if not _profiled_recorder.on:
            return _profiled_target({arguments})
        _profiled_frame = _profiled_begin(_profiled_mark, _profiled_name)
        try:
            return _profiled_target({arguments})
        finally:
            _profiled_end(_profiled_frame)
    return wrapper
"""
"""It has the parameters of what it calls, as packing any arguments takes three times as long."""


@lru_cache
def _compile(parameters: str, arguments: str) -> Callable[..., Callable[..., Any]]:
    """Return what makes a wrapper with such parameters."""
    source = _WRAPPER.format(parameters=parameters, arguments=arguments)
    names: dict[str, Any] = {"__name__": __name__}
    exec(compile(source, "<modeldyno.profiled>", "exec"), names)  # noqa: S102 - of names only, which are those of a function's parameters
    return cast("Callable[..., Callable[..., Any]]", names["make"])


def _signature(target: Callable[..., Any]) -> tuple[str, str]:
    """Return the parameters of a function without their defaults, and the arguments that hand them on."""
    if not isinstance(target, FunctionType):
        return _ANY, _ANY
    code = target.__code__
    names, rest, named_rest = inspect.getargs(code)
    if any(name.startswith(_PREFIX) for name in names):
        return _ANY, _ANY
    before, count = code.co_posonlyargcount, code.co_argcount
    positional, keywords = names[:count], names[count:]
    star = [f"*{rest}"] if rest else []
    stars = [f"**{named_rest}"] if named_rest else []
    parameters = [*positional[:before], *(["/"] if before else []), *positional[before:]]
    parameters += [*(star or (["*"] if keywords else [])), *keywords, *stars]
    arguments = [*positional, *star, *(f"{name}={name}" for name in keywords), *stars]
    return ", ".join(parameters), ", ".join(arguments)


def _timed_steps(recorder: CallRecorder, frame: Frame, steps: Any) -> Generator[Any, Any, Any]:
    """Forward every step to a generator or coroutine, running the clock only meanwhile."""
    sent: Any = None
    thrown: BaseException | None = None
    while True:
        recorder.resume(frame)
        try:
            item = steps.send(sent) if thrown is None else steps.throw(thrown)
        except StopIteration as over:
            return over.value
        finally:
            recorder.pause(frame)
        sent = thrown = None
        try:
            sent = yield item
        except GeneratorExit:
            recorder.resume(frame)
            try:
                steps.close()
            finally:
                recorder.pause(frame)
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
