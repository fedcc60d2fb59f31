"""Documents for testing reports: a study of a thousand trials, and documents with malicious names.

The payloads are common attacks on pages and spreadsheets (OWASP: cross-site scripting, CSV injection), in
all combinations of how they break out and what they run.
"""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import islice, product
from math import inf
from typing import TYPE_CHECKING

from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.base.metrics.constraints import Answer, Constraint
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.measurement import Interval
from modeldyno.base.metrics.metric import Query
from modeldyno.base.report.blocks import Heading, Notice, Severity
from modeldyno.base.report.charts import (
    AxisScale,
    Bins,
    Effect,
    Forest,
    Parallel,
    Plot,
    ReferenceLine,
    Series,
    Stack,
    Tree,
    TreeNode,
    Waterfall,
    WaterfallStep,
)
from modeldyno.base.result.result import Environment
from modeldyno.comparison.change.comparison import CandidateComparison, Change, ChangeVerdict, Comparison
from modeldyno.comparison.change.comparison import SettingDiff as Unlike
from modeldyno.sweeps.study.goal import Goal, Objective
from modeldyno.sweeps.study.study import Study, Trial, TrialPurpose, TrialState
from modeldyno.testing.reporters import full_result, hostile_result
from modeldyno.testing.sample_studies import a_served_study

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.base.report.blocks import Block

PAYLOADS = 500

_BREAKOUTS = (
    "", '"', "'", ">", '">', "'>", "</script>", "</style>", "</title>", "</textarea>", "-->", "]]>",
    "</td></table>", "</svg>", "\\u003c/script\\u003e", "&lt;/script&gt;", "%3C/script%3E", "${", "{{", "`",
    "=", "+", "-", "@", "\t=", "\r@",
)  # fmt: skip
"""Strings that may end the context of a name."""
_ATTACKS = (
    "<script>RUN</script>",
    "<ScRiPt >RUN</sCrIpT>",
    "<img src=x onerror=RUN>",
    "<svg onload=RUN>",
    "<svg><script>RUN</script></svg>",
    "<iframe srcdoc='<script>parent.RUN</script>'>",
    "<body onload=RUN>",
    "<details open ontoggle=RUN>",
    "<input autofocus onfocus=RUN>",
    "<video><source onerror=RUN></video>",
    "<math><mtext><img src=x onerror=RUN></mtext></math>",
    "<a href='javascript:RUN'>x</a>",
    " onmouseover=RUN x=",
    "javascript:RUN",
    "<style>@import 'data:text/css,x'</style>",
    "<link rel=stylesheet href=http://example.invalid/x>",
    "<meta http-equiv=refresh content='0;url=javascript:RUN'>",
    "<base href=http://example.invalid/>",
    'HYPERLINK("http://example.invalid","x")',
    "cmd|' /C calc'!A0",
)
"""Strings that would run, load, or be taken for a formula."""
_RUN = "(window.ran=(window.ran||0)+1)"


def payloads(count: int = PAYLOADS) -> tuple[str, ...]:
    """Return texts that run something wherever they are interpreted as more than text."""
    texts = (out + act.replace("RUN", _RUN) for act, out in product(_ATTACKS, _BREAKOUTS))
    return tuple(islice(texts, count))


# --- malicious documents -------------------------------------------------------------------------


def hostile_study(text: str) -> Study:
    """Return a study whose names, knobs, values, failures and doubts are all `text`."""
    study = a_served_study("instances=1,2", "concurrency=1,4", default={"instances": 1, "concurrency": 1})
    axes = tuple(
        replace(axis, name=text, values=(text, f"{text} 2")) if axis.name == "instances" else axis
        for axis in study.space.axes
    )
    values: tuple[dict[str, KnobValue], ...] = (
        {text: text, "concurrency": 1},
        {text: text, "concurrency": 4},
        {text: f"{text} 2", "concurrency": 1},
    )
    trials = tuple(
        Trial(
            number=number,
            point=point,
            state=TrialState.DONE,
            answers=_answers(100.0 * number, 0.01 * number, 0.01),
            doubts=(text,),
            result=text,
        )
        for number, point in enumerate(values, 1)
    )
    failed = Trial(
        number=4,
        point={text: f"{text} 2", "concurrency": 4},
        state=TrialState.FAILED,
        failure=text,
        kind=text,
    )
    facts = {text: text}
    return replace(
        study,
        name=text,
        space=replace(study.space, axes=axes),
        default=values[0],
        settings={text: text},
        model=ModelIdentity(name=text, digest=text, framework=text),
        environment=Environment(hardware=dict(facts), software=dict(facts)),
        strategy=text,
        trials=(*trials, failed),
    )


def hostile_comparison(text: str) -> Comparison:
    """Return a comparison of two Results whose names are all `text`."""
    change = Change(
        query=Query(metric="latency", statistic="p50", scope=text),
        baseline=1.0,
        candidate=1.1,
        difference=0.1,
        interval=Interval(low=0.05, high=0.15),
        outcome=ChangeVerdict.WORSE,
        why=text,
    )
    unlike = Unlike(name=text, baseline=text, candidate=f"{text} 2")
    contrast = CandidateComparison(
        candidate=hostile_result(text),
        changes=(change,),
        settings=(unlike,),
        software=(unlike,),
        doubts=(Doubt(code=text, seen=text, advice=text),),
    )
    return Comparison(
        id="0123456789ab", created="2026-01-02", baseline=hostile_result(text), contrasts=(contrast,)
    )


def hostile_blocks(text: str) -> Iterator[Block]:
    """Yield every kind of block and chart, with `text` wherever there is text."""
    scale, categories = (
        AxisScale(label=text, unit=text),
        AxisScale(label=text, categories=(text, f"{text} 2")),
    )
    series = Series(name=text, x=(0.0, 1.0), y=(1.0, 2.0), labels=(text, text))
    more = replace(series, name=f"{text} 2")
    yield Heading(title=text)
    yield Notice(severity=Severity.NOTE, text=text, code=text, advice=f"modeldyno {text}", log=text)
    yield Plot(
        title=text,
        x=categories,
        y=scale,
        series=(series, more),
        rules=(ReferenceLine(name=text, at=1.0),),
        note=text,
    )
    yield Bins(
        title=text, scale=replace(scale, unit="s"), edges=(0.0, 1.0, 2.0), counts=(1.0, 2.0), counted=text
    )
    yield Stack(title=text, scale=scale, bars=(text, f"{text} 2"), parts=(series, more), note=text)
    leaf = TreeNode(name=text, value=1.0, detail=text)
    yield Tree(title=text, scale=scale, root=replace(leaf, value=2.0, children=(leaf,)), note=text)
    effect = Effect(name=text, value=0.1, low=0.0, high=0.2, smallest=0.03, outcome=text)
    yield Forest(title=text, effects=(effect,), note=text)
    yield Parallel(title=text, scales=(categories, scale), lines=(series,), note=text)
    steps = (
        WaterfallStep(name=text, size=1.0, low=-inf, high=inf),
        WaterfallStep(name=text, size=None),
        WaterfallStep(name=text, size=-2.0, low=-3.0, high=-1.0, is_rest=True),
        WaterfallStep(name=text, size=-1.0, is_sum=True),
    )
    yield Waterfall(title=text, scale=scale, steps=steps, note=text)
    yield Heading(title=text)


# --- a thousand trials -----------------------------------------------------------------------------

_AXES = (
    "precision=fp32,fp16,int8", "instances=1,2,4", "max_batch=1,4,8,16,32", "queue_delay=0,100,500",
    "threads=1,2,4", "concurrency=1,2,4,8,16,32,64",
)  # fmt: skip
_CALL = {"fp32": 6e-3, "fp16": 3.3e-3, "int8": 2.3e-3}
"""Seconds of a call of the simulated model."""


def a_large_study(trials: int = 1000) -> Study:
    """Return a study of a simulated server: six knobs, and a few failed trials."""
    bound = Constraint.parse("latency.p99 <= 50ms")
    goal = Goal(objectives=(Objective.parse("throughput"),), constraints=(bound,))
    default: dict[str, KnobValue] = {
        "precision": "fp32", "instances": 1, "max_batch": 1, "queue_delay": 0, "threads": 1, "concurrency": 8,
    }  # fmt: skip
    study = a_served_study(*_AXES, goal=goal, default=default, name="simulated")
    axes = study.space.axes
    *knobs, loads = (axis.values for axis in axes)
    rng = random.Random(3)
    configurations = sorted(product(*knobs), key=lambda _: rng.random())
    first = tuple(value for name, value in default.items() if name != "concurrency")
    configurations.sort(key=lambda values: values != first)
    points = (
        dict(zip((axis.name for axis in axes), (*values, load), strict=True))
        for values in configurations
        for load in loads
    )
    return study.add(
        *(_trial(number, point, study, rng) for number, point in enumerate(islice(points, trials), 1))
    )


def _trial(number: int, point: dict[str, KnobValue], study: Study, rng: random.Random) -> Trial:
    if rng.random() < 0.02:
        return Trial(
            number=number,
            point=point,
            state=TrialState.FAILED,
            failure="load: out of memory",
            kind="oom",
            seconds=2.0,
        )
    call, load = _CALL[str(point["precision"])], float(point["concurrency"])
    width = (
        float(point["instances"]) ** 0.8 * float(point["threads"]) ** 0.35 * float(point["max_batch"]) ** 0.22
    )
    rate = width / call * load / (load + 1.5 * width) * rng.gauss(1, 0.015)
    latency = load / rate + float(point["queue_delay"]) * 1e-6
    memory = (300 + 180 * float(point["instances"]) + 4 * float(point["max_batch"])) * 2**20
    answers = (
        *_answers(rate, 1.3 * latency, latency),
        Answer(query=Query.parse("process_memory.max"), value=memory),
        *_stages(latency, load),
    )
    return Trial(
        number=number,
        point=point,
        state=TrialState.DONE,
        stage=TrialPurpose.DEFAULT if point == study.default else TrialPurpose.SEARCH,
        answers=answers,
        judgements=tuple(bound.on(answers[1]) for bound in study.goal.constraints),
        seconds=3.0,
        result=f"{number:012x}",
    )


def _answers(rate: float, slowest: float, mean: float) -> tuple[Answer, ...]:
    values = (("throughput", rate), ("latency.p99", slowest), ("latency.mean", mean))
    return tuple(
        Answer(query=Query.parse(query), value=value, interval=Interval(low=0.98 * value, high=1.02 * value))
        for query, value in values
    )


def _stages(latency: float, load: float) -> Iterator[Answer]:
    """Divide the latency into stages: the larger the load, the larger the share of waiting."""
    waiting = max(0.02, 0.5 - 3 / load)
    parts = {
        "queue_time": waiting, "compute_input_time": 0.05, "compute_time": 0.84 - waiting,
        "compute_output_time": 0.03, "network_time": 0.08,
    }  # fmt: skip
    for metric, part in parts.items():
        yield Answer(query=Query(metric=metric), value=part * latency)


def a_measured_comparison() -> Comparison:
    """Return two runs of which the second is slower, with everything that a comparison page shows."""
    changes = tuple(
        Change(
            query=Query.parse(query),
            baseline=1.0,
            candidate=1 + value,
            difference=value,
            interval=Interval(low=value - width, high=value + width),
            outcome=outcome,
        )
        for query, value, width, outcome in (
            ("latency.p50", 0.12, 0.02, ChangeVerdict.WORSE),
            ("latency.p99", 0.09, 0.11, ChangeVerdict.UNDECIDED),
            ("throughput", -0.1, 0.02, ChangeVerdict.WORSE),
            ("load_time", -0.2, 0.1, ChangeVerdict.BETTER),
            ("process_memory.max", 0.004, 0.01, ChangeVerdict.SAME),
        )
    )
    slower = replace(
        full_result(),
        id="ba9876543210",
        model=ModelIdentity(name="digits-2.onnx", digest="sha256:22", framework="onnx"),
    )
    unlike = Unlike(name="threads", baseline=2, candidate=1)
    contrast = CandidateComparison(candidate=slower, changes=changes, settings=(unlike,))
    return Comparison(id="0123456789ab", created="2026-01-02", baseline=full_result(), contrasts=(contrast,))
