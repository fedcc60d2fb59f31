"""Runs orders in supervised child processes, within a time limit, and explains an end without an answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from modeldyno.base.result.result import FailureKind
from modeldyno.conversion import codec as codec_conversion
from modeldyno.conversion.agreement.conversion import ConversionFailureKind
from modeldyno.conversion.failures import failure
from modeldyno.conversion.recipe import ConversionOrder, ConversionOutcome
from modeldyno.engine.runtime.supervised_child import ChildLimits, SupervisedChild

_MODULE = "modeldyno.conversion.worker"
_STAGE = b'{"stage"'
"""How a line begins that is no answer."""
_KINDS = {
    FailureKind.TIMEOUT: ConversionFailureKind.TIMED_OUT,
    FailureKind.OOM: ConversionFailureKind.OUT_OF_MEMORY,
}
"""Why a child ended; in any other case it crashed."""


_EXIT_TIME = 2.0
"""Seconds that a child has to exit when it has carried out its last order."""

Watch = Callable[[str], None]
"""Is told each stage."""


@contextmanager
def order_processes(timeout: float) -> Iterator[Callable[[ConversionOrder, Watch], ConversionOutcome]]:
    """Yield a function that carries out an order in a child process; its failure is an answer, too.

    The process that ran the source goes on with the first recipe, since it has imported what that needs.
    Every other recipe has a process of its own.

    Args:
        timeout: seconds that an order may take.
    """
    limits = ChildLimits(seconds=timeout)
    kept: list[SupervisedChild] = []

    def run(order: ConversionOrder, watch: Watch) -> ConversionOutcome:
        child, answer = kept.pop() if kept else SupervisedChild.start(_MODULE), None
        try:
            child.send(codec_conversion.encode_part(order))
            answer, stage = _answer(child, limits, watch)
            if answer is not None and answer.reference is not None:
                kept.append(child)
                return answer
        finally:
            if child not in kept:
                _end(child, answered=answer is not None)
        return answer or _failure(child, stage, timeout)

    try:
        yield run
    finally:
        for child in kept:
            _end(child, answered=True)


def _end(child: SupervisedChild, *, answered: bool) -> None:
    """End a child; one that has answered may first remove what its frameworks have written."""
    child.close_input()
    child.end(answered=answered, patience=_EXIT_TIME if answered else None)


def _answer(
    child: SupervisedChild, limits: ChildLimits, watch: Watch
) -> tuple[ConversionOutcome | None, str]:
    """Wait for the answer to an order; return it, or None if the child ended, and the stage it was in."""
    stage = "starting"
    for line in child.lines(limits):
        if line is None:
            continue
        if not line.startswith(_STAGE):
            return codec_conversion.decode_part(ConversionOutcome, line), stage
        stage = str(json.loads(line)["stage"])
        watch(stage)
    return None, stage


def _failure(child: SupervisedChild, stage: str, timeout: float) -> ConversionOutcome:
    kind, message = child.outcome()
    if kind is FailureKind.TIMEOUT:
        message = f"it was still {stage} after {timeout:g} s"
    kind_of_conversion = _KINDS.get(kind, ConversionFailureKind.CRASHED)
    return ConversionOutcome(failure=failure(kind_of_conversion, message, log=child.printed))
