"""All errors that ModelDyno raises deliberately, with the exit codes of the command line.

::

    ModelDynoError                    4
     ├── RequestError                 2   the request itself is invalid; nothing was measured
     │    ├── UnknownName             2   a plugin, knob or metric that does not exist
     │    ├── UnreadableDocument      2   a saved document is damaged, or not of ModelDyno
     │    ├── TrustRequired           2   loading would execute code from the file
     │    ├── Unloadable              2   there is no model at the given place
     │    ├── SizesRefused            2   the network cannot run at the sizes of its inputs
     │    ├── InputRefused            2   an input that was given is not one of the model
     │    ├── ProbeUnsupported        2   a probe needs what the backend does not offer
     │    ├── UnlikeHardware          2   two results are of unlike machines
     │    ├── StaleStudy              2   its measurements are of another model or machine
     ├── MissingExtra                 3   an optional package is not installed
     ├── FaultyPlugin                 3   a plugin of another package is not as it must be, or failed
     ├── RunFailed                    4   a number was requested from a run that failed
     │    ├── OutOfTime               4   nothing could be measured within the time limit
     ├── DeviceInUse                  4   somebody else uses the device that was to be measured
     ├── DiskFull                     4   there is no disk space for an output file
     └── StoreError                   4   the store cannot be read or written
          └── StoreUnavailable        4   not now: its server is away, its disk full, its lock taken

A failed *run* (out of memory, a crash, a timeout) does not raise: it is a
:class:`modeldyno.base.result.result.Failure` inside a Result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable


LINE = "\n\n"
"""Between the lines of the message of a `RequestError` that has several."""


class ModelDynoError(Exception):
    """Base class; the message is one sentence: what was wrong, where, and what to do."""

    exit_code: ClassVar[int] = 4


class RequestError(ModelDynoError):
    """The request is invalid as written; nothing was measured."""

    exit_code = 2
    located: bool = False
    """Whether the message begins with the file and line of the mistake."""


class UnlikeHardware(RequestError):
    """Two results were measured on unlike hardware, and `force` was not given."""


class ProbeUnsupported(RequestError):
    """A probe needs what the backend does not offer."""

    def __init__(self, message: str, probe: str) -> None:
        super().__init__(message)
        self.probe = probe


class UnknownName(RequestError):
    """A name is unknown; the message suggests similar names."""

    @classmethod
    def among(
        cls, kind: str, name: str, known: Iterable[str], *, meant: str | None = None, listed: str = ""
    ) -> UnknownName:
        """Build the error that `name` is no `kind`; suggest `meant`, or the most similar of `known`.

        If nothing is similar, the message lists all; or has `listed`, which says where to find too many.
        """
        from difflib import get_close_matches  # only a mistake needs it

        names = sorted(known)
        name = name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}..."
        near = (
            [meant]
            if meant
            else get_close_matches(name, names, n=1, cutoff=0.6) or [n for n in names if _is_prefix(n, name)]
        )
        others = listed or f"known: {', '.join(names) or 'none'}."
        hint = f"did you mean '{near[0]}'?" if near else others
        return cls(f"There is no {kind} '{name}'; {hint}")


_MAX_NAME = 100
"""Characters of a wrong name that are shown."""


def _is_prefix(known_name: str, name: str) -> bool:
    """Check whether a name is a prefix of a known one, and long enough."""
    return len(name) > 2 and known_name.startswith(name)


class UnreadableDocument(RequestError):
    """A saved document is truncated, corrupt, or of another kind or a later schema."""


class TrustRequired(RequestError):
    """The file holds a pickle, which runs code when it is loaded, and `trust` was not given."""


class SizesRefused(RequestError):
    """The network cannot run at the sizes of its inputs."""


class InputRefused(RequestError):
    """An input that was given is not one that the model takes: its name, dtype or number of dimensions."""


class Unloadable(RequestError):
    """There is no model at the given place, or its loader cannot read it."""


class CannotRunHere(RequestError):
    """The model is for a device, or a version of its runtime, that this machine does not have."""


class StaleStudy(RequestError):
    """The trials of a study, or the loads of a series, are of another model or other hardware."""


class MissingExtra(ModelDynoError):
    """An optional package is not installed."""

    exit_code = 3


class FaultyPlugin(ModelDynoError):
    """A plugin of another package cannot be used; the message names it, its package and what is wrong."""

    exit_code = 3


class RunFailed(ModelDynoError):
    """A number was requested from a run that did not produce it."""


class OutOfTime(RunFailed):
    """Nothing could be measured within the time limit of the command."""


class DeviceInUse(ModelDynoError):
    """Somebody else uses the device that was to be measured; nothing was measured."""


class DiskFull(ModelDynoError):
    """There is no disk space for an output file."""


class StoreError(ModelDynoError):
    """The store cannot be opened, read or written."""


class StoreUnavailable(StoreError):
    """The store, or the place of the models' files, cannot be used now: whoever has time waits for it."""


class FaultyPluginWarning(UserWarning):
    """A plugin of another package was left out, as it cannot be used."""


class UndecidedWarning(UserWarning):
    """It is undecided whether a model has become worse, or there is no baseline to compare with."""


class NotStoredWarning(UserWarning):
    """A Result could not be stored, because the store cannot be written; it is returned anyway."""


class UncertifiedWarning(UserWarning):
    """A percentile was read that has too few independent samples to be certified."""


class PredictedOutOfMemory(MemoryError):
    """The analysis says that a model cannot be called in the memory that is free; the message says why."""


def error_named(kind: str, message: str, probe: str = "") -> ModelDynoError:
    """Return the error that another process reported by its name; a RequestError if that is no error here.

    Args:
        kind: name of its class.
        message: its words.
        probe: the probe that cannot measure.
    """
    known = globals().get(kind)
    error: ModelDynoError = RequestError(message)
    if probe:
        error = ProbeUnsupported(message, probe)
    elif isinstance(known, type) and issubclass(known, ModelDynoError) and known is not ProbeUnsupported:
        error = known(message)
    return error


def with_trace(error: ModelDynoError, trace: str) -> ModelDynoError:
    """Add the traceback of another process, which ``--debug`` shows after that of this one."""
    error.add_note(f"In the child process:\n{trace}")
    return error


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error of a framework means that memory is exhausted."""
    return isinstance(error, MemoryError) or any(phrase in str(error).lower() for phrase in _OUT_OF_MEMORY)


def short_reason(error: BaseException, most: int = 160) -> str:
    """Return the beginning of an error's words, in one line without a full stop; its class if it has none."""
    return " ".join(str(error).split())[:most].rstrip(".") or type(error).__name__


_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "failed to allocate", "bad_alloc")


class ServerFailed(Exception):
    """A server did not start, or exited: an outcome, not a wrong request. Its text is one sentence."""

    def __init__(self, sentence: str, log: str = "") -> None:
        """Create the error.

        Args:
            sentence: how it ended, the cause, and where the whole log is.
            log: the log's lines about a failure.
        """
        super().__init__(sentence)
        self.log = log
