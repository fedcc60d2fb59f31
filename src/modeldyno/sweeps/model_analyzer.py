"""Translate a configuration of Model Analyzer into a sweep file, and say what it leaves out.

Nothing is measured or loaded, and nothing is left out in silence: each of their keys is in the sweep, is
among the options of its command, or is in `TranslatedSweep.dropped` with the reason.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.yaml_file import read_foreign_yaml
from modeldyno.sweeps.model_analyzer_draft import (
    Draft,
    TranslatedSweep,
    as_list,
    as_names,
    as_number,
    as_section,
    check_section,
)
from modeldyno.sweeps.model_analyzer_keys import FIELDS, KEYS, METRICS, METRICS_WITHOUT_COUNTERPART
from modeldyno.sweeps.model_analyzer_model import SEARCH, draft_model, translate_model_config
from modeldyno.sweeps.schema import KEYS as SWEEP_KEYS
from modeldyno.sweeps.study.search_space import Space, axis, parse_axis

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_STRATEGIES = {"brute": "grid", "quick": "quick", "optuna": "optuna"}
_QUOTED = re.compile(r"'([^']+)'")
OWN = frozenset(
    {
        "parameters", "model_config_parameters", "objectives", "constraints", "weighting", "cpu_only",
        "perf_analyzer_flags", "genai_perf_flags", "triton_server_flags", "triton_server_environment",
        "triton_docker_args", "triton_docker_labels",
    }
)  # fmt: skip
"""Keys that may stand below a model."""


def read_model_analyzer(path: Path, model: str = "") -> TranslatedSweep:
    """Translate a configuration file of Model Analyzer; `model` is swept instead of those that it names.

    Raises:
        RequestError: it cannot be read, has a key that Model Analyzer does not know, or names no model.
    """
    config = read_config(path)
    try:
        return translate(config, model=model)
    except RequestError as error:
        error.args = (f"{path}{_line_of(str(error), path)}: {error}",)
        raise


def _line_of(message: str, path: Path) -> str:
    """Return the one line of a file that has what a message quotes: ``, line 3``; empty if several do."""
    *_, word = ("", *_QUOTED.findall(message.partition("; ")[0]))
    pattern = re.compile(rf"\b{re.escape(word)}\b")
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    numbers = [number for number, line in lines if word and pattern.search(line)]
    return f", line {numbers[0]}" if len(numbers) == 1 else ""


def read_config(path: Path) -> dict[str, Any]:
    """Read a configuration file of Model Analyzer as it stands.

    Raises:
        RequestError: it cannot be read, or is no mapping.
    """
    config = read_foreign_yaml(path)
    if not isinstance(config, dict):
        raise RequestError(f"{path} is no configuration of Model Analyzer: it has no keys.")
    return {str(key): value for key, value in config.items()}


def translate(config: Mapping[str, Any], *, model: str = "") -> TranslatedSweep:
    """Translate the keys of a configuration of Model Analyzer; `model` is swept instead of those in it.

    Raises:
        RequestError: it has a key that Model Analyzer does not know, or names no model.
    """
    return _join(config, tuple(_draft_models(config, model)))


def _draft_models(config: Mapping[str, Any], model: str) -> Iterator[Draft]:
    """Translate what holds for each model, or for the one that is given instead."""
    for key, value in config.items():
        if key not in KEYS:
            raise UnknownName.among(
                "key of Model Analyzer", key, KEYS, listed="its docs/config.md lists them all."
            )
        check_section(key, value)
    models = _models(config)
    if model:
        yield draft_model(config, model, next(iter(models.values()), {}), reference=model)
        return
    if not models:
        raise RequestError(
            "it names no model (profile_models); give one: modeldyno sweep DIRECTORY#MODEL "
            "--from-model-analyzer FILE."
        )
    for name, below in models.items():
        prefix = f"{name}." if len(models) > 1 else ""
        yield draft_model(config, name, below, reference=_reference(config, name), prefix=prefix)


def _reference(config: Mapping[str, Any], name: str) -> str:
    """Return the model of a repository, or of a running server."""
    if repository := config.get("model_repository"):
        return f"{str(repository).rstrip('/')}#{name}"
    if config.get("triton_launch_mode") == "remote":
        endpoint = str(config.get("triton_http_endpoint") or "localhost:8000").removeprefix("http://")
        return f"http://{endpoint}#{name}"
    raise RequestError(f"it names no model_repository, so where is {name}?")


def _models(config: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the models to profile, with what stands below each."""
    listed = config.get("profile_models")
    items = [listed] if isinstance(listed, Mapping) else as_list(listed)
    models: dict[str, Mapping[str, Any]] = {}
    for item in items:
        for name, given_below in (item if isinstance(item, Mapping) else {str(item): None}).items():
            below = given_below or {}
            if not isinstance(below, Mapping):
                raise RequestError(f"below {name} stand keys, such as {name}: {{cpu_only: true}}.")
            for key, value in below.items():
                if key not in OWN:
                    raise UnknownName.among(f"key of Model Analyzer below {name}:", str(key), OWN)
                check_section(f"{name}.{key}", value)
            models[str(name)] = below
    return models


# --- several models --------------------------------------------------------------------------------


def _join(config: Mapping[str, Any], drafts: Sequence[Draft]) -> TranslatedSweep:
    """Join the models: one alone, several in turn, or several on one server at the same time."""
    together = bool(config.get("run_config_profile_models_concurrently_enable")) and len(drafts) > 1
    common = _draft_common(config)
    _translate_bisection(common, drafts, config.get(BISECTION), together=together)
    _translate_share(common, drafts, config.get(SHARE))
    for draft in drafts:
        if draft.weight is not None and not together:
            draft.drop("weighting", "it weighs models on one server, and this one is swept alone")
    if together:
        own = _side_by_side(drafts)
    elif len(drafts) > 1:
        shared = {
            key: value
            for key, value in drafts[0].tree.items()
            if all(key in draft.tree and draft.tree[key] == value for draft in drafts)
        }
        own = {
            "models": {
                draft.name: {key: value for key, value in draft.tree.items() if key not in shared}
                for draft in drafts
            },
            **shared,
        }
    else:
        own = drafts[0].tree
    parts = (common, *drafts)
    tree = _merge(common.tree, own)
    if "objectives" not in tree and not any("objectives" in draft.tree for draft in drafts):
        tree["mode"] = "online"
    return TranslatedSweep(
        tree={key: tree[key] for key in SWEEP_KEYS if key in tree},
        options=tuple(
            word for option in dict.fromkeys(w for part in parts for w in part.options) for word in option
        ),
        environment=tuple(dict.fromkeys(word for part in parts for word in part.environment)),
        dropped=tuple(dict.fromkeys(item for part in parts for item in part.dropped)),
    )


def _translate_bisection(common: Draft, drafts: Sequence[Draft], steps: Any, *, together: bool) -> None:
    """Translate the steps between two loads, where there is a bound and one load that is varied."""
    if steps is None:
        return
    bounded = common.tree.keys() & {"latency_budget", "min_throughput"}
    for draft in drafts:
        space = draft.tree.get("space")
        if not bounded and "require" not in draft.tree:
            draft.drop(BISECTION, "there is no bound that a load could break")
        elif together or (
            space is not None and not any(map(_is_varied, map(space.get, ("concurrency", "rate"))))
        ):
            draft.drop(BISECTION, "not one load alone is varied")
        else:
            common.put("budget", "bisect", as_number(steps))


def _translate_share(common: Draft, drafts: Sequence[Draft], percent: Any) -> None:
    """Translate the most points to try, a share of the space, into a number of trials.

    As there, the smaller one counts if the trials are limited, too; several models have the sum of theirs.
    """
    if percent is None:
        return
    if common.tree.get("strategy") != _STRATEGIES["optuna"]:
        common.drop(SHARE, "it is of the mode optuna; other searches end when the best is certain")
        return
    if not all(draft.tree.get("space") for draft in drafts):
        common.drop(SHARE, "the space is not stated here; write budget: with max_trials")
        return
    share = as_number(percent) / 100
    most = sum(math.ceil(share * _points(draft.tree["space"])) for draft in drafts)
    limit = common.tree.get("budget", {}).get("max_trials")
    common.put("budget", "max_trials", most if limit is None else min(most, as_number(limit)))


def _points(space: Mapping[str, Any]) -> int:
    """Return the number of points of a drafted space."""
    axes = (
        axis(name, values) if isinstance(values, list) else parse_axis(f"{name}={values}")
        for name, values in space.items()
    )
    return Space(axes=tuple(axes)).size


def _is_varied(values: Any) -> bool:
    return isinstance(values, list) or (isinstance(values, str) and ".." in values)


BISECTION = "run_config_search_max_binary_search_steps"
SHARE = "max_percentage_of_search_space"


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two trees; the sections of both are joined, and of lists both parts are kept."""
    merged = dict(below)
    for key, value in above.items():
        before = merged.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            merged[key] = {**before, **value}
        else:
            merged[key] = value
    return merged


def _side_by_side(drafts: Sequence[Draft]) -> dict[str, Any]:
    """Return the tree of models that are on one server at the same time."""
    first, *others = drafts
    tree: dict[str, Any] = {**first.tree, "beside": []}
    for draft in others:
        settings = [
            *(
                f"{name}={value}"
                for section in ("set", "load")
                for name, value in draft.tree.get(section, {}).items()
                if not name.startswith("env.")  # of the one server, which is that of the first model
            ),
            *(f"input={text}" for text in draft.tree.get("input", ())),
        ]
        tree["beside"].append(shlex.join([draft.tree["model"], *settings]))
        if draft.tree.get("space"):
            tree["space"] = {
                **tree.get("space", {}),
                **{f"{draft.name}.{name}": values for name, values in draft.tree["space"].items()},
            }
    if len({str(draft.tree.get("require")) for draft in drafts}) > 1:
        tree["require"] = [
            text.replace(" ", f"@{draft.name} ", 1)
            for draft in drafts
            for text in draft.tree.get("require", ())
        ]
    weights = {draft.name: 1.0 if draft.weight is None else draft.weight for draft in drafts}
    if len(set(weights.values())) > 1:
        objectives = first.tree.get("objectives", {"throughput": 1})
        tree["objectives"] = {
            f"{query}@{name}": as_number(weight * name_weight)
            for query, weight in objectives.items()
            for name, name_weight in weights.items()
        }
    return tree


# --- what holds for all models ---------------------------------------------------------------------


def _draft_common(config: Mapping[str, Any]) -> Draft:
    """Translate the server, the search and what is written."""
    draft, unread = Draft(), _Rest(config)
    unread.take(
        "model_repository",
        "profile_models",
        "run_config_profile_models_concurrently_enable",
        BISECTION,
        SHARE,
        *OWN,
        *SEARCH,
    )
    mode = unread.take("run_config_search_mode")
    if mode is not None:
        draft.tree["strategy"] = _STRATEGIES.get(str(mode), str(mode))
    if (budget := unread.take("latency_budget")) is not None:
        draft.tree["latency_budget"] = f"{as_number(budget)}ms"
    if (least := unread.take("min_throughput")) is not None:
        draft.tree["min_throughput"] = as_number(least)
    if (trials := unread.take("optuna_max_trials")) is not None:
        draft.put("budget", "max_trials", trials)
    if (seconds := unread.take("perf_analyzer_timeout")) is not None:
        draft.put("plan", "timeout", f"{as_number(seconds)}s")
    if unread.take("client_protocol") != "http":
        draft.put("set", "protocol", "grpc")
    _translate_launch(draft, unread)
    if (called := unread.take("bls_composing_models")) is not None:
        draft.put("set", "calls", ",".join(as_names(called)))
    if isinstance(called, Mapping):
        draft.drop(
            "bls_composing_models", "what stands below its models: write space: with composing.NAME.instances"
        )
    _translate_composing(draft, unread.take("ensemble_composing_models"))
    _translate_plots(draft, unread.take("plots"))
    _translate_output(draft, unread)
    for key in unread.left():
        draft.drop(key)
    return draft


class _Rest:
    """A configuration from which keys are taken, so that what is left can be told."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config, self._taken = config, set[str]()

    def take(self, *keys: str) -> Any:
        """Take keys; return the value of the first, or None."""
        self._taken.update(keys)
        return self._config.get(keys[0])

    def left(self) -> list[str]:
        return [key for key in self._config if key not in self._taken]


def _translate_launch(draft: Draft, unread: _Rest) -> None:
    """Translate how the server is started; what another way of starting it needs is dropped."""
    mode = str(unread.take("triton_launch_mode") or "local")
    if mode not in _LAUNCHES:
        raise UnknownName.among("triton_launch_mode", mode, _LAUNCHES)
    if mode == "docker":
        draft.put("set", "launch", "docker")
    elif mode == "c_api":
        draft.put("set", "launch", "in-process")
    address = unread.take("triton_http_endpoint")
    if mode == "remote":
        draft.put("set", "server", f"http://{str(address or 'localhost:8000').removeprefix('http://')}")
    elif address is not None:
        draft.drop("triton_http_endpoint", f"triton_launch_mode is {mode}, where free ports are used")
    for key, (knob, needed) in _LAUNCH_KEYS.items():
        value = unread.take(key)
        if value is not None and mode == needed:
            draft.put("set", knob, _port(value) if knob == "grpc_port" else _text(value))
        elif value is not None:
            draft.drop(key, f"triton_launch_mode is {mode}, and only {needed} needs it")


_LAUNCHES = ("local", "docker", "remote", "c_api")
_LAUNCH_KEYS = {
    "triton_docker_image": ("image", "docker"),
    "triton_docker_mounts": ("container.volume", "docker"),
    "triton_docker_shm_size": ("container.shm_size", "docker"),
    "triton_server_path": ("program", "local"),
    "triton_grpc_endpoint": ("grpc_port", "remote"),
}
"""Key to the knob, and the way of starting a server that it belongs to."""


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, list) else str(value)


def _port(endpoint: Any) -> Any:
    port = str(endpoint).rpartition(":")[2]
    return int(port) if port.isdigit() else port


def _translate_composing(draft: Draft, models: Any) -> None:
    """Translate what stands below the parts of an ensemble; the parts themselves are found."""
    if models is not None and not isinstance(models, Mapping):
        draft.drop("ensemble_composing_models")
    for name, below in models.items() if isinstance(models, Mapping) else ():
        part = Draft(name=str(name), prefix=f"ensemble_composing_models.{name}.")
        inner = as_section(f"ensemble_composing_models.{name}", below)
        key = f"ensemble_composing_models.{name}.model_config_parameters"
        translate_model_config(part, as_section(key, inner.get("model_config_parameters")))
        for section in ("set", "space"):
            for knob, value in part.tree.get(section, {}).items():
                draft.put(section, f"composing.{name}.{knob}", value)
        draft.dropped += part.dropped
        for key in inner:
            if key != "model_config_parameters":
                draft.drop(
                    f"ensemble_composing_models.{name}.{key}", "only model_config_parameters apply to a part"
                )


def _translate_plots(draft: Draft, plots: Any) -> None:
    """Translate the charts that a report shall have."""
    for name, section in plots.items() if isinstance(plots, Mapping) else ():
        plot = as_section(f"plots.{name}", section)
        axes = {axis: str(plot.get(f"{axis}_axis")) for axis in ("x", "y")}
        unknown = [axis for axis in axes.values() if axis not in METRICS and axis not in _PLOT_AXES]
        if unknown:
            draft.drop(
                f"plots.{name}", METRICS_WITHOUT_COUNTERPART.get(unknown[0], f"'{unknown[0]}' is no metric")
            )
            continue
        parts: dict[str, Any] = {x: METRICS[axis][0] if axis in METRICS else axis for x, axis in axes.items()}
        parts["title"] = str(plot.get("title") or name)
        draft.put("plots", str(name), parts | ({"monotonic": True} if plot.get("monotonic") else {}))


_PLOT_AXES = ("batch_size", "concurrency")


def _translate_output(draft: Draft, unread: _Rest) -> None:
    """Translate what is written, into options of the command."""
    for key in ("inference_output_fields", "gpu_output_fields"):
        if names := as_names(unread.take(key)):
            fields = [FIELDS[name] for name in names if name in FIELDS]
            missing = [name for name in names if name not in FIELDS]
            reason = f"after the sweep, modeldyno report STUDY -o FILE.csv --fields {','.join(fields)}"
            draft.drop(key, "; there is no ".join([reason, *filter(None, (", ".join(missing),))]))
    if (top := unread.take("num_configs_per_model")) is not None:
        draft.options.append(("--top", str(top)))
    if (top := unread.take("num_top_model_configs")) not in (None, 0):
        draft.options.append(("--top-models", str(top)))
    if (folder := unread.take("output_model_repository_path")) is not None:
        draft.options.append(("--export-configs", str(folder)))
    if unread.take("override_output_model_repository"):
        draft.options.append(("--overwrite",))
    if (folder := unread.take("export_path")) is not None:
        draft.options.append(("-o", str(Path(str(folder)) / "report.html")))
