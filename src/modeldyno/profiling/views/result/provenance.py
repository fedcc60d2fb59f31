"""Table of how a Result was measured: everything that the figures depend on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeldyno.base.job import prompt_images
from modeldyno.base.job.input_spec import format_shape
from modeldyno.base.job.prompt_lengths import (
    SCHEME,
    TRACE_SCHEME,
    WORDS_OF_A_PROMPT,
    parse_prompt_lengths,
    parse_trace_source,
)
from modeldyno.base.job.static_options import Mode
from modeldyno.base.metrics.doubt import EXPECTED
from modeldyno.base.report.blocks import Table, shorten
from modeldyno.base.stats.units import BYTES, format_quantity
from modeldyno.base.views.text import (
    NAME_LIMIT,
    NOISE,
    analysed_at,
    count,
    facts_table,
    figure,
    format_utc,
    join_nonempty,
    unit_of_work,
)
from modeldyno.profiling.views.result.served import describe_client, describe_load
from modeldyno.profiling.views.result.totals import is_inspection

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from modeldyno.base.job.input_spec import InputSpec
    from modeldyno.base.job.knob import Knob
    from modeldyno.base.result.result import Fact, Result


def footer(result: Result) -> Table:
    """Tabulate what was measured, how, and on which hardware and software."""
    model, environment = result.model, result.environment
    identity = (
        f"{model.name}, {_short_digest(model.digest)}, {model.framework}"
        if model
        else result.job.model.argument
    )
    inspected = is_inspection(result)
    facts = {
        "model": identity,
        "inputs": "; ".join(_inputs(result.inputs)),
        "backend": "" if inspected else _backend(result),
        "analysed": _analysed(result) if inspected else "",
        "load": "" if result.job.load is None else describe_load(result, result.job.load),
        "client": describe_client(result),
        "measured": _timing(result),
        "ran": "; ".join(doubt.seen for doubt in result.doubts if doubt.code in EXPECTED),
        "noise": _noise(result),
        "hardware": join_facts(environment.hardware),
        "software": join_facts(environment.software),
        "conditions": "" if inspected else join_facts(environment.conditions),
        "result": join_nonempty(result.id, format_utc(result.created)),
    }
    return facts_table("How it was measured", facts)


def brief_facts(result: Result, knobs: Sequence[Knob] = ()) -> Table:
    """Tabulate what was measured and how in brief, without knobs at their default."""
    facts = {
        "inputs": "; ".join(_inputs(result.inputs)),
        "backend": "" if is_inspection(result) else _backend(result, knobs),
        "analysed": _analysed(result) if is_inspection(result) else "",
        "load": "" if result.job.load is None else describe_load(result, result.job.load),
        "client": describe_client(result),
        "measured": _timing(result, is_brief=True),
    }
    return facts_table("", facts)


def _backend(result: Result, knobs: Sequence[Knob] = ()) -> str:
    usual = {knob.name: (knob.default, knob.usual) for knob in knobs}
    config = {
        name: value
        for name, value in result.job.config.items()
        if name == _DEVICE or value not in usual.get(name, ())
    }
    settings = (f"{name} {_fact(name, value)}" for name, value in config.items())
    return join_nonempty(result.job.backend, *settings)


_DEVICE = "device"
"""The knob that is named even at its default."""


def _analysed(result: Result) -> str:
    """Describe what was analysed, inference or a training step, and at which sizes."""
    inspection, sizes = result.job.inspection, analysed_at(result)
    what = f"a training step with {inspection.optimizer}" if inspection.mode is Mode.TRAIN else "inference"
    return join_nonempty(f"{what} at {sizes}" if sizes else what, "nothing was run")


def _timing(result: Result, *, is_brief: bool = False) -> str:
    """Describe how many calls or training steps were timed, and why it stopped."""
    metric, unit = (
        ("latency", unit_of_work(result)) if result.find("latency") else ("step_time", "training step")
    )
    value = result.distribution(metric)
    if value is None:
        return ""
    processes, effective = len(value.runs), int(value.effective_size("p50"))
    unmet = f" ({'; '.join(value.unmet)})" if value.unmet else ""
    answered = result.number("requests", "ok") or 0
    of_all = f" of {answered:,.0f} that were answered" if answered > len(value) else ""
    parts = [
        f"{count(len(value), unit)}{of_all} in {count(processes, 'process', 'processes')}",
        f"equivalent to {effective:,} independent {'one' if effective == 1 else 'ones'} for the median"
        if effective < len(value)
        else "",
    ]
    if is_brief:
        return ", ".join(filter(None, parts))
    parts += [
        f"warm-up of {value.warmup_dropped:,} left out" if value.warmup_dropped else "no warm-up",
        f"{value.rejected:,} rejected as invalid" if value.rejected else "",
        f"stop: {value.stop}{unmet}",
    ]
    return ", ".join(filter(None, parts))


def _noise(result: Result) -> str:
    figures = ((label, figure(result, metric)) for metric, label in NOISE.items())
    return ", ".join(f"{label} {text}" for label, text in figures if text)


_ALIKE = 3
"""Inputs from which on those that differ in their names alone are one: a decoder has a cache a layer."""


def _inputs(specs: Sequence[InputSpec]) -> Iterator[str]:
    """Describe each input, or the first of those that are alike."""
    alike: dict[str, list[InputSpec]] = {}
    for spec in specs:
        alike.setdefault(_input(spec, ""), []).append(spec)
    for spec in specs:
        name, group = shorten(spec.name, NAME_LIMIT), alike[_input(spec, "")]
        if len(group) < _ALIKE:
            yield _input(spec, name)
        elif spec is group[0]:
            yield _input(spec, f"{name} and {len(group) - 1} like it, each")


def _input(spec: InputSpec, name: str) -> str:
    shape = "" if spec.shape is None or spec.dtype == "object" else format_shape(spec.shape)
    values = _origin(spec.source) if spec.source else _value_range(spec)
    distinct = "" if spec.distinct is None else f"{spec.distinct:,} distinct"
    return join_nonempty(" ".join(filter(None, (name, shape, spec.dtype))), values, distinct)


def _origin(source: str) -> str:
    """Describe the file of an input's values, the tokens of its prompts and answers, or its images."""
    if source.startswith(TRACE_SCHEME):
        path, window = parse_trace_source(source)
        return f"with the lengths of {path}{'' if window is None else f' in its first {window:g} s'}"
    if source.startswith(prompt_images.SCHEME):
        images = prompt_images.parse_images(source)
        return f"{images.count} in each request, of {images.width} by {images.height} pixels"
    if not source.startswith(SCHEME):
        return f"from {source}"
    lengths = parse_prompt_lengths(source)
    shared = f", of which the first {lengths.shared} are the same in all" if lengths.shared else ""
    if lengths.pairs:
        return f"of tokens as in {lengths.pairs}{shared}, for answers of the lengths beside them"
    answers = "" if lengths.output is None else f", for answers of at most {lengths.output}"
    size = f"{WORDS_OF_A_PROMPT} words" if lengths.prompt is None else f"{lengths.prompt} tokens"
    return f"of {size} each{shared}{answers}"


def _value_range(spec: InputSpec) -> str:
    """Describe the random values of an input."""
    if spec.low is None or spec.high is None:
        return ""
    if spec.dtype == "string":
        lengths = f"{spec.low:g}" if spec.low == spec.high else f"{spec.low:g} to {spec.high:g}"
        return f"of {lengths} random words each"
    return f"all {spec.low:g}" if spec.low == spec.high else f"random in {spec.low:g}..{spec.high:g}"


_SELF_EXPLANATORY = {"processor", "architecture", "system"}
"""Facts whose value needs no name."""


def join_facts(facts: Mapping[str, Fact]) -> str:
    """Join the facts of an environment in one line."""
    return ", ".join(
        _fact(name, value) if name in _SELF_EXPLANATORY else f"{name.replace('_', ' ')} {_fact(name, value)}"
        for name, value in facts.items()
    )


def _fact(name: str, value: Fact) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int) and "memory" in name:
        return format_quantity(value, BYTES, 3)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _short_digest(digest: str) -> str:
    scheme, _, digits = digest.rpartition(":")
    return f"{scheme}:{digits[:12]}" if scheme else digits[:12]
