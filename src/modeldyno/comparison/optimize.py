"""Convert a model, measure in turns what is still the model, and choose by the user's preferences."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.base.codec import plain
from modeldyno.base.errors import RequestError
from modeldyno.base.job.knob import BATCH_SIZE
from modeldyno.base.result.result import Progressed
from modeldyno.base.stats.schedule import PLAN, RoundSchedule
from modeldyno.comparison import codec as codec_comparison
from modeldyno.comparison.change.build import CompareOptions
from modeldyno.comparison.change.choice import SOURCE, Optimized, Preference, choose
from modeldyno.comparison.explain import run_comparison
from modeldyno.comparison.views.optimized import headline
from modeldyno.conversion.reference import STEADY
from modeldyno.conversion.run import convert
from modeldyno.profiling.packages import PackageRecord, write_package
from modeldyno.profiling.request import Request

if TYPE_CHECKING:
    from modeldyno.base.job.input_spec import InputSpec
    from modeldyno.base.job.knob import KnobValue
    from modeldyno.base.metrics.metric import Query
    from modeldyno.comparison.change.comparison import Comparison
    from modeldyno.conversion.agreement.conversion import Converted
    from modeldyno.conversion.request import ConversionRequest
    from modeldyno.engine.runtime.session import RunSession

MAX_TIME = 180.0
"""Seconds that the forms are measured for."""
PREFER = ("latency.p50",)
_PROBES = ("latency", "throughput")


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeOptions:
    """How to choose, and where the package goes."""

    prefer: tuple[str, ...] = PREFER
    """Preferences in their order, as `Preference.parse` reads them."""
    batch_size: int | None = None
    """Samples of each call that is measured."""
    max_time: float = MAX_TIME
    output: str | Path | None = None
    """The package; None for one in the working directory, named for the model."""

    def preferences(self) -> tuple[Preference, ...]:
        """Read the preferences.

        Raises:
            RequestError: one cannot be read.
        """
        forms = plugins.names("converter")
        return tuple(Preference.parse(text.strip(), forms) for text in self.prefer or PREFER)


def optimize(
    request: ConversionRequest, options: OptimizeOptions, session: RunSession, *, backend: str = ""
) -> Optimized:
    """Convert a model, measure in turns what is still the model, choose, and write the package.

    Args:
        request: the model, and the forms to try.
        options: how to choose.
        session: runs what is measured.
        backend: what runs a live object, which is converted in this process; empty for other models.

    Raises:
        RequestError: the request is wrong; nothing was measured.
    """
    preferences = options.preferences()
    target = None if options.output is None else _check_target(Path(options.output))
    by_name = all(preference.form for preference in preferences)

    def report_stage(recipe: str, stage: str) -> None:
        session.watch(Progressed(stage=f"{recipe}: {stage}" if recipe else stage))

    with tempfile.TemporaryDirectory() as folder:
        if by_name:
            forms = tuple(p.form for p in preferences if p.form != SOURCE)
            request = replace(request, to=forms, first=True)
        conversion = convert(replace(request, output=folder), in_process=bool(backend), watch=report_stage)
        usable = tuple(made for made in conversion.converted if made.usable)
        names = tuple(made.recipe for made in usable)
        comparison = None
        if usable and not by_name:
            comparison = _measure(request, backend, usable, preferences, options, session)
        choice = choose(preferences, names, comparison)
        optimized = Optimized(conversion=conversion, comparison=comparison, choice=choice)
        chosen = next((made for made in usable if made.recipe == choice.form), None)
        if chosen is None:
            return _without_files(optimized)
        target = target or Path(f"{conversion.name}-optimized.zip")
        _write(target, optimized, chosen)
    return replace(_without_files(optimized), path=str(target))


def _check_target(path: Path) -> Path:
    if path.suffix != ".zip":
        raise RequestError(f"A package is a .zip file, not '{path}'.")
    if not path.absolute().parent.is_dir():
        raise RequestError(f"There is no folder {path.absolute().parent} for the package.")
    return path


def _without_files(optimized: Optimized) -> Optimized:
    """Return it without the paths of files that are gone."""
    gone = tuple(replace(made, path="", reproduce="") for made in optimized.conversion.converted)
    return replace(optimized, conversion=replace(optimized.conversion, converted=gone))


def _measure(
    request: ConversionRequest,
    backend: str,
    usable: tuple[Converted, ...],
    preferences: tuple[Preference, ...],
    options: OptimizeOptions,
    session: RunSession,
) -> Comparison | None:
    """Measure the source and its forms in turns."""
    resolved, _ = request.resolve()
    batch: dict[str, KnobValue] = {} if options.batch_size is None else {BATCH_SIZE.name: options.batch_size}
    bounds = [bound for preference in preferences for bound in preference.bounds]
    queries = [preference.query for preference in preferences if preference.query is not None]
    shared = Request(
        model="",
        settings=batch,
        probes=tuple(dict.fromkeys((*_PROBES, *_other_probes(queries)))),
        percentiles=tuple(dict.fromkeys(name for bound in bounds if (name := bound.percentile))),
        plan=PLAN,
        trust=True,
    )
    source = replace(
        shared, model=request.model, backend=backend or None, inputs=resolved.inputs, name=SOURCE
    )
    jobs = [replace(source, trust=request.trust).job()]
    for made in usable:
        converter = plugins.converter(made.recipe)
        settings = {**STEADY.get(converter.backend, {}), **batch}
        jobs.append(
            replace(
                shared,
                model=f"{converter.loader}:{made.path}",
                settings=settings,
                inputs=_inputs(made) or resolved.inputs,
                name=made.recipe,
            ).job()
        )
    turns = RoundSchedule(side_count=len(jobs), max_time=options.max_time)
    judged = tuple(dict.fromkeys((*map(str, queries), *(str(bound.query) for bound in bounds))))
    return run_comparison(jobs, turns, CompareOptions(metrics=judged, why=False), session)


def _other_probes(queries: list[Query]) -> tuple[str, ...]:
    return ("memory",) if any("memory" in query.metric for query in queries) else ()


def _inputs(made: Converted) -> tuple[InputSpec, ...]:
    """Return what a form is measured with, with the paths of its samples."""
    folder = Path(made.path).parent
    return tuple(
        spec if spec.source is None else replace(spec, source=str(folder / spec.source))
        for spec in made.inputs
    )


def _write(target: Path, optimized: Optimized, chosen: Converted) -> None:
    folder = Path(chosen.path).parent
    agreement = chosen.agreement
    assert agreement is not None
    record = PackageRecord(
        name=optimized.conversion.name,
        form=chosen.recipe,
        scheme=plugins.converter(chosen.recipe).loader,
        file=f"{folder.name}/{Path(chosen.path).name}",
        why=headline(optimized),
        agreement=agreement.sentence,
        digest=chosen.digest,
        inputs=chosen.inputs,
        software={name: str(version) for name, version in optimized.conversion.software.items()},
    )
    documents = {"conversion.json": plain.encode(_without_files(optimized).conversion)}
    if optimized.comparison is not None:
        documents["comparison.json"] = codec_comparison.encode(optimized.comparison)
    write_package(target, record, folder, documents)
