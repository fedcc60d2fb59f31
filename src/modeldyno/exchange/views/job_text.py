"""The job of a result or a study as the text of a YAML file, which measures it again."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from modeldyno.base import options
from modeldyno.base.errors import RequestError
from modeldyno.base.job.load_spec import Arrivals, Load
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.base.result.result import Result
from modeldyno.base.views.text import format_knob_value
from modeldyno.engine.trace.regions import SCRIPT
from modeldyno.profiling.views.rerun_command import (
    format_input_option,
    format_neighbours,
    format_option_values,
    format_rate,
    inputs_to_give,
    name_to_give,
    rerun_words,
)
from modeldyno.sweeps.study.goal import Rank
from modeldyno.sweeps.study.study import Budget, Study
from modeldyno.sweeps.views.sweep_command import named_goal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from modeldyno.base.options import Option

_MAPPINGS = frozenset({"set"})
"""Options that are mappings in a file."""
_NEVER_IN_FILES = "trust"


def job_text(document: object, bounds: Sequence[str] = ()) -> str:
    """Return the text of the job file that measures a Result or a Study again.

    Args:
        document: the document.
        bounds: what the file is to require of a Result; a Study has its own.

    Raises:
        RequestError: it was measured in a script, or is another kind of document.
    """
    import yaml  # only this needs it

    if isinstance(document, Study | Result) and document.job.model.live:
        raise RequestError(
            "This was measured of a live object, which no file can name; measure a factory of it, such as "
            "torch:file.py:factory."
        )
    match document:
        case Study() if not bounds:
            tree, job = dict(_of_study(document)), document.job
        case Study():
            raise RequestError("A study has bounds of its own; drop `require`.")
        case Result() if document.job.model.scheme != SCRIPT:
            required = [part for bound in bounds for part in ("--require", bound)]
            tree, job = _of_words([*rerun_words(document), *required]), document.job
        case Result():
            raise RequestError("This was measured in a script, which is no job; run the script again.")
        case _:
            raise RequestError("This follows from several results; ask for the job of one of them.")
    note = "# its file runs code when it is loaded: allow that by --trust\n" if job.trust else ""
    text: str = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=1000)
    return note + text


def _of_words(arguments: Sequence[str]) -> dict[str, Any]:
    """Turn the words of a command line into the keys of a file."""
    tree: dict[str, Any] = {"command": arguments[0], "model": arguments[1]}
    waiting = list(arguments[2:])
    while waiting:
        key = waiting.pop(0).removeprefix("--").replace("-", "_")
        if not waiting or waiting[0].startswith("--"):
            if key != _NEVER_IN_FILES:
                tree[key] = True
            continue
        text = waiting.pop(0)
        if key in _MAPPINGS:
            name, _, value = text.partition("=")
            tree.setdefault(key, {})[name] = _plain(value)
        elif key in tree:
            earlier = tree[key]
            tree[key] = [*(earlier if isinstance(earlier, list) else [earlier]), _plain(text)]
        else:
            tree[key] = _plain(text)
    return tree


def _of_study(study: Study) -> Iterator[tuple[str, Any]]:
    job, goal = study.job, named_goal(study)
    yield from (("command", "sweep"), ("model", job.model.argument))
    yield from _unless_empty("name", name_to_give(job))
    yield "backend", job.backend
    yield from _unless_empty(
        "set", {name: _plain(format_knob_value(value)) for name, value in study.settings.items()}
    )
    yield from _unless_empty("input", [format_input_option(spec) for spec in inputs_to_give(job)])
    yield "probe", list(job.probes)
    yield from _unless_empty("pre", job.observation.preprocess)
    yield from _unless_empty("post", job.observation.postprocess)
    yield from _unless_empty("evaluate", list(job.observation.evaluate))
    yield from _unless_empty("data", job.observation.data)
    yield "space", dict(_pair(str(axis)) for axis in study.space.axes)
    for word, maximized in (("maximize", True), ("minimize", False)):
        aims = {str(o.query): _plain(f"{o.weight:g}") for o in goal.objectives if o.maximize is maximized}
        yield from _unless_empty(word, aims)
    yield from _unless_empty("require", [str(bound) for bound in goal.constraints])
    if goal.rank is not Rank.BEST:
        yield "rank", str(goal.rank)
    yield "strategy", study.strategy
    budget = {f.name: getattr(study.budget, f.name) for f in fields(Budget)}
    yield from _unless_empty("budget", {k: v for k, v in budget.items() if v != getattr(Budget(), k)})
    plan = dict(_changed_keys(job.plan, Plan(), options.PLAN))
    yield "plan", {**plan, "max_time": f"{job.plan.max_time:g}s", "seed": study.seed}
    yield from _unless_empty("beside", format_neighbours(job, settings=False))
    if job.load is not None:
        load: dict[str, Any] = dict(_changed_keys(job.load, Load(), options.LOAD))
        name = "concurrency" if job.load.closed else "rate"
        if job.load.arrivals is Arrivals.TRACE:
            load = {**dict(_replay_keys(job.load)), **load}
        elif all(axis.name != name for axis in study.space.axes):
            load = {name: job.load.slots if job.load.closed else format_rate(job.load), **load}
        yield from _unless_empty("load", load)


def _replay_keys(load: Load) -> Iterator[tuple[str, Any]]:
    """Yield the keys of the trace that a load replays."""
    yield "replay", str(load.trace)
    if load.speed != 1:
        yield "replay_speed", _plain(f"{load.speed:g}")
    if load.window is not None:
        yield "replay_window", ",".join(format_option_values(options.SECONDS, load.window))


def _changed_keys(settings: Any, defaults: Any, rows: Iterable[Option]) -> Iterator[tuple[str, Any]]:
    """Yield the keys of a sweep file whose fields differ from the defaults."""
    for row in rows:
        value = getattr(settings, row.field)
        if row.in_file and value != getattr(defaults, row.field):
            yield row.field, _plain(",".join(format_option_values(row.kind, value)))


def _unless_empty(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if value:
        yield name, value


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


def _plain(text: str) -> Any:
    """Return whole numbers and truth values as such, so that a file shows them without quotes."""
    if text in {"true", "false"}:
        return text == "true"
    return int(text) if text.isascii() and text.isdecimal() and str(int(text)) == text else text
