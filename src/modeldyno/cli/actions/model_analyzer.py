"""What to type instead of a command line of Model Analyzer: ``profile``, ``analyze`` and ``report``."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import LINE, RequestError
from modeldyno.sweeps.model_analyzer import read_config, translate
from modeldyno.sweeps.model_analyzer_draft import DroppedKey, as_names
from modeldyno.sweeps.model_analyzer_keys import KEYS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_SHORT = {
    "-f": "config_file", "-s": "checkpoint_directory", "-i": "monitoring_interval", "-d": "duration_seconds",
    "-m": "model_repository", "-b": "batch_sizes", "-c": "concurrency", "-r": "client_max_retries",
    "-e": "export_path", "-n": "report_model_configs", "-o": "output_formats",
}  # fmt: skip
_SWITCHES = frozenset(
    {
        "override_output_model_repository", "collect_cpu_metrics", "always_report_gpu_metrics",
        "dcgm_disable",
        "skip_summary_reports", "skip_detailed_reports", "reload_model_disable", "early_exit_enable",
        "use_concurrency_formula", "run_config_search_disable",
        "run_config_profile_models_concurrently_enable",
        "request_rate_search_enable", "concurrency_sweep_disable", "perf_output", "quiet", "verbose",
    }
)  # fmt: skip
"""Options without a value."""
_ONLY_OPTIONS = {"analysis_models", "mode", "quiet", "verbose"}
"""Options that are no keys of its file."""
_COMMANDS = ("profile", "analyze", "report")
_CONFIGURATION = re.compile(r"(?P<model>.+?)_(?:config_)?(?P<number>\d+|default)")
"""A configuration as Model Analyzer names it (``text_config_4``), or as we do (``text_4``)."""
_STUDY = "STUDY"
_USED_LATER = frozenset(
    {
        "config_file", "analysis_models", "profile_models", "report_model_configs", "objectives",
        "constraints", "latency_budget", "min_throughput", "export_path", "output_formats",
        "num_configs_per_model",
    }
)  # fmt: skip
"""Options of which `analyze` and `report` are made."""
_FORMATS = ("pdf", "csv")
"""Of a report, besides HTML."""


def suggest(arguments: Sequence[str]) -> str:
    """Return what to type instead of a command line of Model Analyzer; empty if it is none.

    Below it stands each option that the line does not have, with the reason.

    Args:
        arguments: those after the program, such as ``["profile", "--model-repository", "models"]``.
    """
    command = next((word for word in arguments if word in _COMMANDS), "")
    options, unknown = _read_options(arguments)
    recognised = options.keys() - {"quiet", "verbose", "mode", "output_formats", "concurrency", "batch_sizes"}
    if command == "profile":  # other letters mean something else elsewhere: -n, -r, -i
        written = {
            word.partition("=")[0].lstrip("-").replace("-", "_") for word in arguments if word[:2] == "--"
        }
        recognised &= written | {"config_file", "model_repository"}
    if not command or not recognised:
        return ""
    config = {key: value for key, value in options.items() if key not in _ONLY_OPTIONS}
    path = config.pop("config_file", None)
    note = ""
    if path is not None:
        try:
            config = {**read_config(Path(str(path))), **config}
        except RequestError as error:
            note = f" ({str(error).rstrip('.')}: with it, modeldyno sweep --from-model-analyzer {path})"
    left_out = [DroppedKey(key=flag, reason="Model Analyzer has no such option") for flag in unknown]
    if command == "profile":
        line, dropped = _instead_of_profile(config, options, None if note else path)
        left_out += [_as_typed(item, options) for item in dropped]
    else:
        read = _report_line if command == "report" else _analysis_line
        line = f"Model Analyzer's {command} is: {read(config, options)}"
        left_out += [
            DroppedKey(key=_flag(key), reason=KEYS[key])
            for key in options
            if key in KEYS.keys() - _USED_LATER
        ]
    return f"{line}{note}{_list_left_out(left_out)}"


def _flag(key: str) -> str:
    return f"--{key.replace('_', '-')}"


def _as_typed(item: DroppedKey, options: Mapping[str, Any]) -> DroppedKey:
    """Name a key as the option by which it was given, if it was."""
    return DroppedKey(key=_flag(item.key), reason=item.reason) if item.key in options else item


def _list_left_out(items: Iterable[DroppedKey]) -> str:
    return "".join(f"{LINE}left out: {item}" for item in items)


def _read_options(arguments: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the options of Model Analyzer by the keys of its file, and those that it does not have."""
    options: dict[str, Any] = {}
    unknown: list[str] = []
    waiting = list(arguments)
    before = True
    while waiting:
        word = waiting.pop(0)
        before = before and word not in _COMMANDS
        flag, separator, value = word.partition("=")
        key = "mode" if before and flag == "-m" else _SHORT.get(flag, "")
        if flag.startswith("--"):
            key = flag[2:].replace("-", "_")
        if key not in KEYS and key not in _ONLY_OPTIONS:
            unknown += [flag] if flag.startswith("-") else []
            continue
        if key in _SWITCHES:
            options[key] = True
        elif separator or waiting:
            options[key] = value if separator else waiting.pop(0)
    return options, unknown


def _instead_of_profile(
    config: Mapping[str, Any], options: Mapping[str, Any], path: Any
) -> tuple[str, Sequence[DroppedKey]]:
    """Return the sweep that a profile of Model Analyzer is, and what it does not have."""
    try:
        sweep = translate(config)
    except RequestError as error:
        return (
            f"Model Analyzer's profile is modeldyno sweep, but {str(error)[:1].lower()}{str(error)[1:]}",
            (),
        )
    if options.get("mode"):
        sweep.tree["mode"] = str(options["mode"])
    if "models" not in sweep.tree:
        return f"Model Analyzer's profile is: {sweep.command_line()}", sweep.dropped
    if path is not None:
        line = f"modeldyno sweep --from-model-analyzer {path} > sweep.yaml; then: {sweep.command()}"
    else:
        line = sweep.command_line()
    return f"Model Analyzer's profile of several models is: {line}", sweep.dropped


def _analysis_line(config: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """Return the ranking of a stored study that an analysis of Model Analyzer is."""
    models = as_names(options.get("analysis_models") or config.get("profile_models"))
    study = models[0] if models else _STUDY
    try:
        tree = translate({**config, "profile_models": None}, model=study).tree
    except RequestError:
        tree = {}
    command = ["modeldyno", "sweep", "--rerank", study]
    for metric, weight in tree.get("objectives", {}).items():
        command += ["--objective", metric if weight == 1 else f"{metric}:{weight}"]
    for bound in tree.get("require", ()):
        command += ["--require", bound]
    for key in ("latency_budget", "min_throughput"):
        if key in tree:
            command += [_flag(key), str(tree[key])]
    if top := options.get("num_configs_per_model"):
        command += ["--top", str(top)]
    return shlex.join([*command, "-o", _report_file(config, study)])


def _report_line(config: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """Return the report of named configurations that one of Model Analyzer is."""
    named = options.get("report_model_configs") or config.get("report_model_configs") or ()
    names = named.split(",") if isinstance(named, str) else [str(name) for name in named]
    matches = [match for name in names if (match := _CONFIGURATION.fullmatch(name.strip()))]
    studies = list(dict.fromkeys(match["model"] for match in matches)) or [_STUDY]
    chosen = [f"{match['model']}_{match['number']}" for match in matches] or ["NAME"]
    command = ["modeldyno", "report", *studies, "--configuration", ",".join(chosen)]
    return shlex.join([*command, "-o", _report_file(config, studies[0])])


def _report_file(config: Mapping[str, Any], study: str) -> str:
    """Return the file of a report: PDF where Model Analyzer writes that, too."""
    folder = str(config.get("export_path") or ".")
    formats = as_names(config.get("output_formats"))
    suffix = next((each for each in formats if each in _FORMATS), "html")
    name = f"{'report' if study == _STUDY else study}.{suffix}"
    return f"{folder.rstrip('/')}/{name}" if folder != "." else name
