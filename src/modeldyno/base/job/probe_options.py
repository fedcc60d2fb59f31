"""Options of the probes of the second pass."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError, UnknownName

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOptions:
    """What to trace, beyond what each probe does by default."""

    layers: tuple[str, ...] = ()
    """Parts of module paths or classes; only these modules are traced one by one, or all if empty."""
    prompts: tuple[int, ...] = (128,)
    """Lengths of the prompts, in tokens."""
    generated: tuple[int, ...] = (32,)
    """Number of tokens to generate."""
    trace: str | None = None
    """File for a trace of a few calls, to be opened with Perfetto."""
    records: str | None = None
    """File for all requests of a load: .csv, .jsonl or .npz."""
    outputs: str | None = None
    """File for the outputs of one call: .npz."""
    evaluate: tuple[str, ...] = ()
    """Metrics of labelled samples, such as accuracy."""
    preprocess: str | None = None
    """Function that makes the inputs of the model, as ``file.py:name`` or ``package.module:name``."""
    postprocess: str | None = None
    """Function that takes the outputs of the model, likewise."""
    data: str | None = None
    """File of the labelled samples: .npz, perhaps with ``:`` and the name of the labels; None: `inputs`."""

    def named(self, path: str, kind: str) -> bool:
        """Return whether a module is selected."""
        return not self.layers or any(part in path or part.lower() in kind.lower() for part in self.layers)

    def unmatched(self, modules: Iterable[tuple[str, str]]) -> tuple[str, ...]:
        """Return the requested names that match no path or class; `modules` are pairs of these."""
        pairs = list(modules)
        return tuple(
            part
            for part in self.layers
            if not any(part in path or part.lower() in kind.lower() for path, kind in pairs)
        )


EVALUATION = "evaluation"
"""The probe that evaluates a model on labelled samples."""
EVALUATIONS = ("accuracy", "top_5", "misclassification", "f1", "evaluation_loss", "mean_absolute_error")
"""Metrics that can be evaluated on labelled samples."""
EVALUATION_ALIASES = {
    "loss": "evaluation_loss",
    "mae": "mean_absolute_error",
    "error": "misclassification",
}
"""Other names of them."""
_TOP = re.compile(r"top[-_]?(\d+)")


def evaluation_name(text: str) -> str:
    """Return the name of a metric of labelled samples: that of ``top3`` and ``top-3`` is ``top_3``.

    The label with the largest output, ``top1``, is `accuracy`.
    """
    if (match := _TOP.fullmatch(text)) and int(match[1]):
        return f"top_{int(match[1])}" if int(match[1]) > 1 else "accuracy"
    return EVALUATION_ALIASES.get(text, text)


def is_evaluation(name: str) -> bool:
    """Return whether a metric is evaluated on labelled samples: one of `EVALUATIONS`, or top_<k>."""
    top = re.fullmatch(r"top_([1-9]\d*)", name)
    return name in EVALUATIONS or (top is not None and int(top[1]) > 1)


def check_evaluations(names: Collection[str], *, needed: bool = False) -> None:
    """Refuse the name of what is no evaluation, and data without a name where one is needed.

    Raises:
        RequestError: a name is unknown, or none was given for the data.
    """
    for name in names:
        if not is_evaluation(name):
            raise UnknownName.among("evaluation", name, EVALUATIONS)
    if needed and not names:
        raise RequestError("`data` has no effect without `evaluate`; add that, such as accuracy.")


RECORD_FORMATS = (".csv", ".jsonl", ".npz")
"""Suffixes of a file with all requests of a load."""
MOST_TOKENS = 1_048_576
_NUMBER = re.compile(r"[1-9]\d{0,6}")


def parse_token_counts(text: str, option: str) -> tuple[int, ...]:
    """Read numbers of tokens: ``128`` or ``32,128,512``.

    Raises:
        RequestError: one is not a whole number from 1 to MOST_TOKENS.
    """
    parts = [part.strip() for part in text.split(",")]
    if invalid := [part for part in parts if not _NUMBER.fullmatch(part) or int(part) > MOST_TOKENS]:
        raise RequestError(
            f"{option} takes numbers of tokens, such as 128 or 32,128,512, not '{invalid[0]}'."
        )
    return tuple(dict.fromkeys(map(int, parts)))
