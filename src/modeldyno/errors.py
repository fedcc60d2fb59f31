"""Every error that ModelDyno raises on purpose, each with the exit code of the command line.

::

    ModelDynoError                    4
     ├── RequestError                 2   the request itself is wrong; nothing was measured
     │    ├── UnknownName             2   a plugin, knob or metric that does not exist
     │    ├── UnreadableDocument      2   a saved document is damaged, or not one of ours
     │    ├── TrustRequired           2   loading would execute code from the file
     │    ├── Unloadable              2   the model is not where it was said to be, or is none
     │    ├── SizesRefused            2   the network cannot be carried out at the sizes of its inputs
     │    └── StaleStudy              2   its trials are of another model, or of another machine
     ├── MissingExtra                 3   an optional package is not installed
     ├── RunFailed                    4   asked for a number of a run that failed
     ├── DiskFull                     4   there is no room for a file that was asked for
     └── StoreError                   4   the store cannot be read or written

A wrong *outcome* (out of memory, a crash, a time-out) is no exception: it is a
:class:`modeldyno.core.result.result.Failure` inside a Result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable


class ModelDynoError(Exception):
    """Root of the tree; its text is one sentence: what was wrong, where, and what to do."""

    exit_code: ClassVar[int] = 4


class RequestError(ModelDynoError):
    """The request cannot be carried out as written; nothing was measured."""

    exit_code = 2


class UnknownName(RequestError):
    """A name that is in no table, with the nearest names that are."""

    @classmethod
    def among(
        cls, kind: str, name: str, known: Iterable[str], *, meant: str | None = None, listed: str = ""
    ) -> UnknownName:
        """Say that `name` is no `kind`, and suggest what is `meant` by it, or the nearest of `known`.

        Where nothing is near, all are named; or, of too many, where they are `listed`.
        """
        from difflib import get_close_matches  # noqa: PLC0415 - only a mistake needs it

        names = sorted(known)
        near = (
            [meant]
            if meant
            else get_close_matches(name, names, n=1, cutoff=0.6) or [n for n in names if _begins(n, name)]
        )
        others = listed or f"known: {', '.join(names) or 'none'}."
        hint = f"did you mean '{near[0]}'?" if near else others
        return cls(f"There is no {kind} '{name}'; {hint}")


def _begins(known: str, name: str) -> bool:
    """Say whether a name is the beginning of a known one, and long enough to mean it."""
    return len(name) > 2 and known.startswith(name)  # noqa: PLR2004 - two letters begin too much


class UnreadableDocument(RequestError):
    """A saved document is truncated, corrupt, or of another kind or a later schema."""


class TrustRequired(RequestError):
    """The file holds a pickle, which runs code when it is loaded, and `--trust` was not given."""


class SizesRefused(RequestError):
    """The network cannot be carried out at the sizes of its inputs."""


class Unloadable(RequestError):
    """The model is not where it was said to be, or is none that its loader reads."""


class StaleStudy(RequestError):
    """What a study has measured so far is of another model, or of other hardware."""


class MissingExtra(ModelDynoError):
    """An optional package is not installed."""

    exit_code = 3


class RunFailed(ModelDynoError):
    """A number was asked of a run that did not produce it."""


class DiskFull(ModelDynoError):
    """There is no room on the disk for a file that was asked for."""


class StoreError(ModelDynoError):
    """The store cannot be opened, read or written."""


class UndecidedWarning(UserWarning):
    """Whether a model has got worse could not be decided, or there is nothing to compare it with."""


class NotStoredWarning(UserWarning):
    """A Result was to be kept in the store, which cannot be written; it is returned all the same."""


class UncertifiedWarning(UserWarning):
    """A percentile was read that rests on too few independent samples to be a claim."""
