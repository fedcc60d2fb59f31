"""What ``modeldyno sweep`` does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from modeldyno.base.errors import RequestError
from modeldyno.base.options import LOAD, PLAN
from modeldyno.base.yaml_file import FileConfig, Tree
from modeldyno.cli.actions import sweep_models, sweep_study
from modeldyno.cli.actions.printing import ignore_broken_pipe
from modeldyno.profiling.job_file import is_job_address, read_job
from modeldyno.profiling.run import OK
from modeldyno.sweeps.model_analyzer import read_model_analyzer
from modeldyno.sweeps.model_set import MODELS, split_models
from modeldyno.sweeps.schema import AIMS, GOALS
from modeldyno.sweeps.value_parsers import CERTAIN, parse_certainty

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_SAME_NAME = ("backend", "name", "strategy", "pre", "post", "evaluate", "data", "tolerance", "verify", *GOALS)
"""Options that have the same name in a sweep file."""
_SECTIONS = {
    "plan": {"trial_time": "max_time", **{row.name: row.field for row in PLAN if row.field != "max_time"}},
    "budget": {
        **{name: name for name in ("max_time", "max_trials", "curves", "bisect")},
        "until": "certain",
    },
    "load": {
        **{name: name for name in ("concurrency", "rate", "replay", "replay_speed", "replay_window")},
        **{row.name: row.field for row in LOAD},
    },
}
"""Options that have another name in a sweep file: section, option, name in the section."""


def run(**options: Any) -> int:
    """Begin, resume or rerank a study, or translate one; return the exit code."""
    ctx = click.get_current_context()
    if options["from_model_analyzer"] is not None:
        _print_translation(ctx, options)
        return OK
    exclusive = [name for name in ("resume", "rerank") if options[name] is not None]
    if len(exclusive) > 1 or (exclusive and options["dry_run"]):
        raise RequestError("--resume, --rerank and --dry-run exclude each other; give one of them.")
    if exclusive and options["model"] is not None:
        raise RequestError(
            f"--{exclusive[0]} uses a stored study, which has its model; drop {options['model']}."
        )
    typed, _ = _split_given(ctx, options)
    if options["rerank"] is not None:  # modeldyno.toml only applies to new sweeps
        return sweep_study.rerank(merge_config(ctx, typed), options)
    if options["resume"] is not None:
        return sweep_study.resume(merge_config(ctx, typed), options)
    if options["model"] is None:
        raise RequestError("A sweep needs a MODEL or a file SWEEP.yaml; see modeldyno sweep --help.")
    config = merge_config(ctx, options)
    if several := split_models(config):
        return sweep_models.begin(several, options)
    return sweep_study.begin(config, options)


def _print_translation(ctx: click.Context, options: Mapping[str, Any]) -> None:
    """Print the sweep file that a configuration of Model Analyzer means."""
    typed, _ = _split_given(ctx, options)
    if unused := set(typed) - {"from_model_analyzer", "model"}:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(unused))
        raise RequestError(
            f"--from-model-analyzer prints a sweep file, so {flags} would have no effect; drop it."
        )
    translated = read_model_analyzer(Path(options["from_model_analyzer"]), options["model"] or "")
    with ignore_broken_pipe():
        click.echo(translated.text(), nl=False)


def check_certainty(text: str) -> None:
    """Check the text of ``--until``.

    Raises:
        RequestError: it is not a certainty between 0 and 1.
    """
    if not 0 < parse_certainty(text) < 1:
        raise RequestError(f"--until '{text}': it must be {CERTAIN}.")


def merge_config(ctx: click.Context, options: Mapping[str, Any]) -> FileConfig:
    """Merge the sweep file and the options: typed options override the file, defaults do not."""
    typed, from_defaults = _split_given(ctx, options)
    address = options.get("model") or ""
    if not is_job_address(address):
        tree = _to_tree({**from_defaults, **typed})
        also = [str(model) for model in options.get("also") or ()]
        model = {"model": options["model"]} if options.get("model") else {}
        return FileConfig(tree={**({MODELS: [options["model"], *also]} if also else model), **tree})
    file = read_job(address, "sweep").options
    tree = file.tree
    if AIMS.keys() & typed.keys():  # a typed aim replaces those of the file
        tree = {name: value for name, value in tree.items() if name not in AIMS}
    merged = FileConfig(tree=tree, lines=file.lines, origin=file.origin).over(
        FileConfig(tree=_to_tree(from_defaults))
    )
    return FileConfig(tree=_to_tree(typed)).over(merged)


def _split_given(ctx: click.Context, options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options that were typed, and those that modeldyno.toml gives; ``-b`` gives settings, too."""
    typed: dict[str, Any] = {}
    from_defaults: dict[str, Any] = {}
    for name, value in options.items():
        source = ctx.get_parameter_source(name)
        if value not in (None, ()) and (name == "settings" or source is not ParameterSource.DEFAULT):
            (from_defaults if source is ParameterSource.DEFAULT_MAP else typed)[name] = value
    return typed, from_defaults


def _to_tree(values: dict[str, Any]) -> Tree:
    """Convert options to the tree of a sweep file."""
    tree: Tree = {name: _as_list(values[name]) for name in _SAME_NAME if name in values}
    for title, renamed in _SECTIONS.items():
        section = {file_name: values[name] for name, file_name in renamed.items() if name in values}
        tree |= {title: section} if section else {}
    tree |= {name: _as_list(values[option]) for option, name in _RENAMED.items() if option in values}
    if "settings" in values:
        tree["set"] = _parse_pairs("--set", values["settings"], "instances=2")
    if "spaces" in values:
        tree["space"] = _parse_pairs("--space", values["spaces"], "batch_size=1,2,4")
    return tree


_RENAMED = {"inputs": "input", "probes": "probe", "beside": "beside"}


def _as_list(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _parse_pairs(flag: str, texts: Iterable[str], example: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise RequestError(f"{flag} '{text}' is not knob=value, such as {example}.")
        if name.strip() in pairs:
            raise RequestError(f"{flag} gives {name.strip()} twice; give all its values at once.")
        pairs[name.strip()] = value
    return pairs
