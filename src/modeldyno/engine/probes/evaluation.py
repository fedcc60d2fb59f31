"""The probe ``evaluation``: calls the model with labelled samples, and measures how well it answers them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Interval, Measurement, SampleScores, pack
from modeldyno.engine.data import labelled_samples
from modeldyno.engine.interfaces.probe import Pass
from modeldyno.engine.interfaces.session import LocalSession

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy import ndarray

    from modeldyno.base.metrics.measurement_plan import Plan
    from modeldyno.engine.interfaces.probe import ProbeContext

needs = LocalSession
pass_ = Pass.SECOND


def measure(subject: ProbeContext, plan: Plan) -> Iterator[Measurement | Doubt]:
    """Call every sample of the data once; yield the accuracy and its likes, each with its interval.

    A metric that the data do not fit, such as top_5 of three classes, becomes a doubt if another one fits.

    Raises:
        RequestError: there are no labelled data, or they do not fit the model.
    """
    del plan
    from modeldyno.base.stats.evaluation import evaluate  # numpy is slow to import

    source = _source(subject)
    path, labels = labelled_samples.read_labels(source)
    data = hashlib.sha256(path.read_bytes()).hexdigest()
    outputs = _outputs(subject, source)
    unfit: dict[str, RequestError] = {}
    for name in subject.observation.evaluate:
        try:
            result = evaluate(name, outputs, labels)
        except RequestError as error:
            unfit[name] = error
            continue
        yield Measurement(
            metric=name,
            value=result.value,
            interval=Interval(low=result.low, high=result.high),
            scores=None if result.scores is None else SampleScores(data=data, values=pack(result.scores)),
        )
    if len(unfit) == len(subject.observation.evaluate):
        raise next(iter(unfit.values()))
    for name, reason in unfit.items():
        yield Doubt(
            code="not-evaluated",
            seen=f"{name} was not computed: {str(reason).rstrip('.')}",
            advice=f"leave out {name}, or give data that it fits",
        )
    yield Measurement(metric="evaluated_samples", value=len(labels))


def check(subject: ProbeContext) -> None:
    """Call the first samples, and evaluate them with the labels that lie farthest apart.

    Raises:
        RequestError: there are no labelled data, or none of the metrics can be computed from them.
    """
    from modeldyno.base.stats.evaluation import evaluate  # numpy is slow to import

    source = _source(subject)
    path, labels = labelled_samples.read_labels(source)
    few = min(len(labels), subject.samples)
    try:
        outputs = _outputs(subject, source, few)
    except RequestError:
        raise
    except Exception as error:  # whatever a runtime raises for inputs that it does not take
        reason = next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")
        raise RequestError(f"The samples of {path} do not fit the model: {reason}.") from error
    unfit: list[RequestError] = []
    for name in subject.observation.evaluate:
        try:
            evaluate(name, outputs, labels[:few])
            if labels.ndim == 1 and labels.dtype.kind not in "OUS":
                evaluate(name, outputs[[0, 0]], labels[[labels.argmin(), labels.argmax()]])
        except RequestError as error:
            unfit.append(error)
    if len(unfit) == len(subject.observation.evaluate):
        raise unfit[0]


def _source(subject: ProbeContext) -> str:
    """Return where the labelled samples are."""
    sources = (spec.source for spec in subject.inputs if spec.source)
    source = subject.observation.data or next(iter(sources), None)
    if source is None:
        raise RequestError("To evaluate a model, name labelled samples with `data`, such as test.npz.")
    return source


def _outputs(subject: ProbeContext, source: str, most: int | None = None) -> ndarray:
    """Return the first output of all samples, or of as many of the first ones."""
    session, like = subject.session, subject.feeds[0]
    assert isinstance(session, LocalSession)
    samples = labelled_samples.read_samples(source, like)
    data = {name: array[:most] for name, array in samples.items()}
    return labelled_samples.first_outputs(
        data, subject.samples, lambda feed: session.arrays(session.prepare(feed)())
    )
