"""What to type instead of a command line of Model Analyzer: ``profile``, ``analyze`` and ``report``."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.errors import RequestError
from modeldyno.sweeps.model_analyzer import read_config, translate
from modeldyno.sweeps.model_analyzer_draft import as_names
from modeldyno.sweeps.model_analyzer_keys import KEYS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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


def suggest(arguments: Sequence[str]) -> str:
    """Return what to type instead of a command line of Model Analyzer; empty if it is none.

    Args:
        arguments: those after the program, such as ``["profile", "--model-repository", "models"]``.
    """
    command = next((word for word in arguments if word in _COMMANDS), "")
    options = _read_options(arguments)
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
    if command == "profile":
        return _instead_of_profile(config, options, None if note else path) + note
    line = _report_line(config, options) if command == "report" else _analysis_line(config, options)
    done = "Model Analyzer's report is" if command == "report" else "Model Analyzer's analyze is"
    return f"{done}: {line}{note}"


def _read_options(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the options of Model Analyzer among the words, by the keys of its file."""
    options: dict[str, Any] = {}
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
            continue
        if key in _SWITCHES:
            options[key] = True
        elif separator or waiting:
            options[key] = value if separator else waiting.pop(0)
    return options


def _instead_of_profile(config: Mapping[str, Any], options: Mapping[str, Any], path: Any) -> str:
    """Return the sweep that a profile of Model Analyzer is."""
    try:
        sweep = translate(config)
    except RequestError as error:
        return f"Model Analyzer's profile is modeldyno sweep, but {str(error)[:1].lower()}{str(error)[1:]}"
    if options.get("mode"):
        sweep.tree["mode"] = str(options["mode"])
    if "models" not in sweep.tree:
        return f"Model Analyzer's profile is: {sweep.command_line()}"
    if path is not None:
        return (
            f"Model Analyzer's profile of several models is: modeldyno sweep --from-model-analyzer {path} "
            f"> sweep.yaml; then: {sweep.command()}"
        )
    return f"Model Analyzer's profile of several models is: {sweep.command_line()}"


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
            command += [f"--{key.replace('_', '-')}", str(tree[key])]
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
    folder = str(config.get("export_path") or ".")
    name = "report" if study == _STUDY else study
    return f"{folder.rstrip('/')}/{name}.html" if folder != "." else f"{name}.html"
