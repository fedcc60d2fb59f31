"""``modeldyno.compare``: the command as a function."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from modeldyno import codec, plugins
from modeldyno.api.error_wording import in_python
from modeldyno.api.profile import check_settings, several
from modeldyno.comparison.explain import carried_out
from modeldyno.comparison.operands import sides
from modeldyno.comparison.run import comparison
from modeldyno.core.comparison.build import Question, smallest_effects
from modeldyno.core.comparison.comparison import Comparison
from modeldyno.core.comparison.schedule import FEWEST_ROUNDS, MOST_ROUNDS, PLAN, Turns
from modeldyno.core.result.result import Result
from modeldyno.core.study.study import Study
from modeldyno.errors import RunFailed
from modeldyno.profiling.request import Request, inspection
from modeldyno.progress import showing_progress
from modeldyno.runtime.inline import inline
from modeldyno.runtime.session import campaign

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from modeldyno.comparison.operands import Asked
    from modeldyno.core.metrics.measurement_plan import Plan
    from modeldyno.core.result.result import Event
    from modeldyno.core.spec.input_spec import InputSpec
    from modeldyno.core.spec.knob import KnobValue


@in_python
def compare(  # noqa: PLR0913 - one function per command, one parameter per option
    baseline: Any,
    candidate: Any,
    *more: Any,
    example: Any = None,
    backend: str | None = None,
    inputs: Sequence[str | InputSpec] = (),
    probes: Sequence[str] = (),
    mode: str = "inference",
    optimizer: str | None = None,
    metrics: Sequence[str] = (),
    smallest: float | str | Mapping[str, float | str] = MappingProxyType({}),
    baseline_settings: Mapping[str, KnobValue] | None = None,
    candidate_settings: Mapping[str, KnobValue] | None = None,
    baseline_inputs: Sequence[str | InputSpec] = (),
    candidate_inputs: Sequence[str | InputSpec] = (),
    min_rounds: int = FEWEST_ROUNDS,
    max_rounds: int = MOST_ROUNDS,
    max_time: float | None = 600.0,
    block: bool = False,
    why: bool = True,
    run: bool = False,
    force: bool = False,
    plan: Plan | None = None,
    trust: bool = False,
    progress: bool = True,
    watch: Callable[[Event], None] | None = None,
    **settings: KnobValue,
) -> Comparison:
    """Say whether a candidate is better or worse than a baseline, as ``modeldyno compare`` does.

    Args:
        baseline: a model (a path, a reference, or a live object, which runs inside this process), or what was
            measured: a Result, a Study (which stands for its winner), a file, a stored id or tag.
        candidate: likewise; both are models, or both were measured.
        more: further candidates, each compared with the baseline.
        example: inputs of live objects.
        backend: what runs the models.
        inputs: shapes or files, as ``--input`` takes them.
        probes: what to measure; as `profile` does if empty.
        mode: ``"inference"`` for calls, ``"train"`` for training steps.
        optimizer: of the training steps.
        metrics: what the verdict rests on, such as ``("latency.p99", "throughput")``.
        smallest: change that matters: ``0.05`` or ``"5%"``, or by metric, ``{"latency": "5%"}``.
        baseline_settings: knobs of the baseline alone.
        candidate_settings: knobs of the candidates alone.
        baseline_inputs: shapes or files that the baseline alone is given.
        candidate_inputs: those that the candidates alone are given.
        min_rounds: rounds before the first look; a round has a fresh process of each.
        max_rounds: most rounds, while a verdict is undecided.
        max_time: seconds for all of it, looking for causes included; one round is made in any case.
        block: all runs of one side before those of the next, not in turns.
        why: look at outputs, and at layers and operators where something has changed.
        run: run the jobs of what was measured anew, in turns.
        force: compare though the hardware is not the same.
        plan: how carefully each process measures; by default five seconds a probe at most.
        trust: allow files that run code when loaded (in the child process).
        progress: say on standard error how far it is, after two seconds, in a terminal or a notebook.
        watch: called with every event while it runs.
        settings: the backend's knobs for both, such as ``batch_size=8``.

    Returns:
        The Comparison; ``found.contrasts[0].outcome`` is the verdict, ``.changes`` has every metric.

    Raises:
        RequestError: the request is wrong, or the hardware is not the same.
        RunFailed: it was interrupted before anything could be compared.
    """
    check_settings(settings)
    question = Question(
        metrics=several(metrics, "metrics"), smallest=_effects(smallest), force=force, why=why
    )
    shared = Request(
        model="",
        backend=backend,
        settings={},
        inputs=several(inputs, "inputs"),
        probes=several(probes, "probes"),
        plan=plan or PLAN,
        inspection=inspection(mode=mode, optimizer=optimizer, modules=False),
        trust=trust,
    )
    own = (baseline_settings or {}, candidate_settings or {})
    fed = (several(baseline_inputs, "baseline_inputs"), several(candidate_inputs, "candidate_inputs"))
    with ExitStack() as stack:
        asked = [
            _asked(
                side,
                replace(
                    shared,
                    settings={**settings, **own[min(place, 1)]},
                    inputs=(*shared.inputs, *fed[min(place, 1)]),
                ),
                example,
                stack,
            )
            for place, side in enumerate((baseline, candidate, *more))
        ]
        found = sides(asked, run=run)
        results = [side for side in found if isinstance(side, Result)]
        if results:
            return comparison(results, question)
        jobs = [side for side in found if not isinstance(side, Result)]
        turns = Turns(
            sides=len(jobs),
            first=min(min_rounds, max_rounds),
            most=max_rounds,
            max_time=max_time,
            block=block,
        )
        watched = stack.enter_context(showing_progress(watch, progress=progress))
        bench = stack.enter_context(campaign(watched))
        here = any(job.model.scheme == "object" for job in jobs)
        made = carried_out(
            jobs,
            turns,
            question,
            replace(bench, execute=inline, together=None) if here else bench,
        )
    if made is None:
        raise RunFailed("It was interrupted before anything could be compared.")
    return made


def _asked(side: Any, shared: Request, example: Any, stack: ExitStack) -> Asked:
    """Take a document as it is, and a model by its reference; a live object has one meanwhile."""
    if isinstance(side, Result | Study | Comparison):
        return side
    if isinstance(side, str | Path):
        return replace(shared, model=str(side))
    objects = plugins.resolve("loader", "object")
    ref = objects.offer(side, name=None, example=example)
    stack.callback(objects.withdraw, ref)
    return replace(shared, model=str(ref), backend=shared.backend or objects.backend_of(side))


def _effects(given: float | str | Mapping[str, float | str]) -> dict[str, float]:
    """Read the changes that matter: one for all, or one by metric."""
    if isinstance(given, Mapping):
        return smallest_effects(f"{name}={size}" if name else str(size) for name, size in given.items())
    return smallest_effects((str(given),))


def read_comparison(path: str | Path) -> Comparison:
    """Read a Comparison from a file.

    Raises:
        RequestError: it cannot be read.
    """
    return codec.read_comparison(Path(path))


def save_comparison(comparison: Comparison, path: str | Path) -> None:
    """Write a Comparison as JSON, whole or not at all.

    Raises:
        RequestError: the file cannot be written.
    """
    codec.write(Path(path), codec.encode_comparison(comparison))
