"""Judge the outputs of a call by those that another configuration or model returned for its inputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.result.output_agreement import CLOSE
from modeldyno.base.system.temporary_folder import own_folder
from modeldyno.conversion.agreement.compare import match_outputs
from modeldyno.conversion.verify import load_verify, name_of
from modeldyno.engine.data import outputs
from modeldyno.engine.runtime.supervised_child import ChildLimits, SupervisedChild

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.base.result.output_agreement import OutputAgreement
    from modeldyno.conversion.agreement.rule import OutputCheck, Tolerance
    from modeldyno.models.interface import Feed

_MODULE = "modeldyno.conversion.verify_worker"
_SECONDS = 60.0
"""Time that the user's function has for the outputs of a call."""


def judge_files(expected: Path, actual: Path, check: OutputCheck) -> str:
    """Return why the outputs in one file will not do beside those in the other; empty if they will.

    Args:
        expected: inputs and outputs of a call, as the probe ``outputs`` writes them.
        actual: those of the call that is judged; of another batch size, the samples in both are judged.
        check: what they must hold.

    Raises:
        ValueError: they were run with different inputs; the message is a phrase.
        RequestError: the tolerance names an output that there is not, or the function is wrong.
    """
    first, second = outputs.shared_samples(outputs.load_call(expected), outputs.load_call(actual))
    return judge(first, second, check)


def judge(expected: Feed, actual: Feed, check: OutputCheck) -> str:
    """Return why outputs will not do beside those that are expected; empty if they will.

    Raises:
        RequestError: the tolerance names an output that there is not, or the function is wrong.
    """
    try:
        agreements = outputs.agreement(expected, actual)
    except ValueError as error:  # other shapes, or another number of outputs
        return str(error)
    if not check.verify:
        assert check.tolerance is not None
        return beyond(agreements, check.tolerance)
    named = {name: actual[other] for name, other in match_outputs(expected, actual).items()}
    why = _verify(check.verify, expected, named)
    return f"{name_of(check.verify)} refuses them: {why}" if why else ""


def beyond(agreements: Sequence[OutputAgreement], tolerance: Tolerance) -> str:
    """Return which output is farthest beyond what it may be off by; empty if none is.

    Raises:
        UnknownName: the tolerance names an output that there is not.
    """
    names = [agreement.output for agreement in agreements]
    for output in tolerance.outputs:
        if output not in names:
            raise UnknownName.among("output", output, names)
    allowed = {name: tolerance.of(name) or CLOSE for name in names}
    worst = max(agreements, key=lambda one: one.relative / allowed[one.output], default=None)
    if worst is None or worst.relative <= allowed[worst.output]:
        return ""
    return (
        f"output '{worst.output}' is off by {worst.relative:.2g} of its largest value, where "
        f"{allowed[worst.output]:g} is allowed"
    )


def _verify(reference: str, expected: Feed, actual: Feed) -> str:
    """Call the user's function, in a process of its own unless it is one of this process."""
    if reference.startswith("object:"):
        return load_verify(reference)(actual, expected)
    import numpy as np  # slow to import

    with own_folder("verify") as folder:
        paths = [str(Path(folder) / name) for name in ("expected.npz", "actual.npz")]
        for path, feed in zip(paths, (expected, actual), strict=True):
            np.savez(path, **outputs.named_arrays({}, feed))  # type: ignore[arg-type]
        child, answer = SupervisedChild.start(_MODULE), None
        try:
            child.send(json.dumps([reference, *paths]).encode(), last=True)
            lines = (line for line in child.lines(ChildLimits(seconds=_SECONDS)) if line is not None)
            answer = next(lines, None)
        finally:
            child.end(answered=answer is not None)
    if answer is None:
        raise RequestError(f"`verify`: {name_of(reference)} gave no answer: {child.outcome()[1]}.")
    refused, error = json.loads(answer)
    if error:
        raise RequestError(error)
    return str(refused)
