"""``modeldyno.sweep``: the configuration that is best within bounds, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno import codec, plugins
from modeldyno.api.error_wording import in_python
from modeldyno.api.profile import check_settings
from modeldyno.core.study.study import Study
from modeldyno.errors import RequestError
from modeldyno.progress import showing_progress
from modeldyno.runtime.inline import inline
from modeldyno.sweeps import build as told
from modeldyno.sweeps.run import carried_out
from modeldyno.sweeps.schema import KEYS
from modeldyno.sweeps.yaml_file import Words

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.core.metrics.measurement_plan import Plan
    from modeldyno.core.result.result import Event
    from modeldyno.core.spec.job import Job
    from modeldyno.core.spec.knob import KnobValue
    from modeldyno.interfaces import Executor

Aims = str | Sequence[str] | Mapping[str, float]
"""A metric, several, or metric to weight."""


@in_python
def sweep(  # noqa: PLR0913 - one function per command, one parameter per option
    model: Any = None,
    *,
    space: str | Sequence[str] | Mapping[str, Any] = (),
    objectives: Aims = (),
    maximize: Aims = (),
    minimize: Aims = (),
    require: str | Sequence[str] = (),
    rank: str | None = None,
    strategy: str | None = None,
    max_time: float | str | None = None,
    max_trials: int | None = None,
    certain: float | str | None = None,
    example: Any = None,
    backend: str | None = None,
    inputs: str | Sequence[str] = (),
    probes: str | Sequence[str] = (),
    load: Mapping[str, Any] | None = None,
    plan: Plan | None = None,
    beside: str | Sequence[str] = (),
    name: str | None = None,
    trust: bool = False,
    resume: str | Path | Study | None = None,
    force: bool = False,
    store: bool = True,
    progress: bool = True,
    watch: Callable[[Event], None] | None = None,
    **settings: KnobValue,
) -> Study:
    """Find the configuration of a model that is best within bounds, as ``modeldyno sweep`` does.

    Args:
        model: what `profile` takes; a live object is measured inside this process.
        space: what is varied: ``{"batch_size": (1, 8, 64), "intra_threads": "1..4"}``, or text as ``--space``
            takes it; what usually matters where nothing is named.
        objectives: metrics to be improved, each in its own direction, perhaps with weights:
            ``{"throughput": 10, "latency.p99": 5}``; the throughput if nothing is named.
        maximize: metrics to be raised, such as ``"throughput"``.
        minimize: metrics to be lowered, such as ``"latency.p99"``.
        require: bounds, such as ``"latency.p99 <= 10ms"``.
        rank: ``"best-load"``, a configuration stands for itself at its best load; or ``"each-load"``.
        strategy: how to search: quick (if None), grid, ladder or optuna.
        max_time: seconds of the whole, or text such as ``"10m"``; None: until nothing more is to be learnt.
        max_trials: most measurements, those that verify included.
        certain: how sure to be of the best, a share; 0.95 if None.
        example: inputs of a live object.
        backend: what runs or serves it.
        inputs: shapes or files, as ``--input`` takes them.
        probes: what to measure; what the goal needs if empty.
        load: what a server is put under, such as ``{"concurrency": 8, "duration": 5.0}``.
        plan: how carefully to measure what verifies; the search looks more shortly.
        beside: other models on the same server at the same time, such as ``"b.onnx concurrency=4"``.
        name: what to call the model and the study.
        trust: allow files that run code when loaded (in the child process).
        resume: go on with a study, from the store by its id or name, or as it was returned; only the
            budget can be another one.
        force: resume although the model or the machine has changed.
        store: keep the study, and the Result of each trial before the next begins.
        progress: say on standard error how far it is, after two seconds, in a terminal or a notebook.
        watch: called with every event while it runs.
        settings: the backend's knobs that stay as they are, such as ``device="cuda"``.

    Returns:
        The Study; ``modeldyno.ranking(study).best`` is its best configuration. An interruption (Ctrl-C) lets
        the current trial finish and gives the Study so far; a second one ends that trial.

    Raises:
        RequestError: the request is wrong; nothing was measured.
        MissingExtra: an optional package is not installed.
        RunFailed: the first two trials failed.
    """
    check_settings(settings)
    given = {
        "objectives": objectives, "maximize": maximize, "minimize": minimize, "require": require,
        "rank": rank, "strategy": strategy,
        "backend": backend, "input": inputs, "probe": probes, "name": name, "set": settings, "load": load,
        "beside": beside,
        "space": _space(space), "plan": _plan(plan),
        "budget": _given(max_time=max_time, max_trials=max_trials, certain=certain),
    }  # fmt: skip
    tree = {key: _listed(value) for key, value in given.items() if value not in (None, (), "", {}, [])}
    if resume is not None:
        further = _resumed(model, resume, Words(tree=tree))
        with showing_progress(watch, progress=progress) as watched:
            return carried_out(further, store=store, watch=watched, force=force)[0]
    if model is None:
        raise RequestError("A sweep needs a model; or resume=, with the id or the name of a study.")
    if isinstance(model, str | Path):
        made, _ = told.study(Words(tree={**tree, "model": str(model)}), trust=trust)
        with showing_progress(watch, progress=progress) as watched:
            return carried_out(_planned(made, plan), store=store, watch=watched, force=force)[0]
    objects = plugins.resolve("loader", "object")
    ref = objects.offer(model, name=name, example=example)
    live = {"backend": objects.backend_of(model), **tree, "model": str(ref)}
    try:
        made, _ = told.study(Words(tree=live), trust=trust)
        with showing_progress(watch, progress=progress) as watched:
            return carried_out(_planned(made, plan), store=store, watch=watched, rooms=_here)[0]
    finally:
        objects.withdraw(ref)


def _here(job: Job, *, fresh: bool) -> Executor:
    """Run every Job inside this process, where a live object is."""
    del job, fresh
    return inline


def _resumed(model: Any, resume: str | Path | Study, words: Words) -> Study:
    """Find a study, and give it the budget that is asked for."""
    further = sorted(({"model"} if model is not None else set()) | (words.tree.keys() - {"budget"}))
    if further:
        raise RequestError(
            f"A study goes on as it was begun, so that {', '.join(further)} cannot change; only "
            "max_time, max_trials and certain can."
        )
    found = resume if isinstance(resume, Study) else read_study(resume)
    return replace(found, budget=told.budget(words, found.budget))


def read_study(source: str | Path) -> Study:
    """Read a Study from a file, or from the store by its id, the beginning of one, or its name.

    Raises:
        RequestError: there is none, or it cannot be read.
    """
    path = Path(source)
    if path.is_file():
        return codec.read_study(path)
    with plugins.store() as store:
        return store.study(str(source))


def _space(given: str | Sequence[str] | Mapping[str, Any]) -> dict[str, Any]:
    """Read axes by name; text is ``knob=values``, a range of Python's the list of its numbers."""
    if not isinstance(given, str | Sequence):
        return {name: _listed(values) for name, values in given.items()}
    found: dict[str, Any] = {}
    for text in (given,) if isinstance(given, str) else given:
        name, separator, values = text.partition("=")
        if not separator or not name.strip():
            raise RequestError(f"space takes knob=values, such as batch_size=1,2,4, not '{text}'.")
        if name.strip() in found:
            raise RequestError(f"space gives {name.strip()} twice; give all its values at once.")
        found[name.strip()] = values
    return found


def _listed(given: Any) -> Any:
    return list(given) if isinstance(given, tuple | range) else given


def _plan(plan: Plan | None) -> dict[str, Any]:
    """Give what a sweep can be told of a Plan."""
    known = KEYS["plan"]["properties"]
    return (
        {} if plan is None else {k: v for k, v in asdict(plan).items() if k in known and v not in (None, ())}
    )


def _planned(study: Study, plan: Plan | None) -> Study:
    """Take from a Plan what only Python can say."""
    if plan is None:
        return study
    percentiles = tuple(dict.fromkeys((*study.job.plan.percentiles, *plan.percentiles)))
    mine = replace(study.job.plan, percentiles=percentiles, processes=plan.processes)
    return replace(study, job=replace(study.job, plan=mine))


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
