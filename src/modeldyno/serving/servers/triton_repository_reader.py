"""Reads an existing Triton model repository: a model and, for an ensemble, the models that it consists of."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import BATCH, InputSpec
from modeldyno.base.system.inside_folder import check_inside
from modeldyno.serving.servers import onnx_config, pbtxt
from modeldyno.serving.servers.file_cache import link_or_copy
from modeldyno.serving.servers.triton_config import DTYPES, Config
from modeldyno.serving.servers.triton_repository_writer import PYTHON, add_our_runner

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CONFIG = "config.pbtxt"
_DTYPES = {theirs: ours for ours, theirs in DTYPES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonRepository:
    """A model in a repository."""

    folder: Path
    name: str
    configs: Mapping[str, Config]
    """Name to configuration, of the model (first) and of the models that it consists of."""
    by_runner: frozenset[str] = frozenset()
    """Models of the ONNX Runtime backend that our runner runs, as the server lacks it."""

    @property
    def config(self) -> Config:
        """Configuration of the model itself."""
        return self.configs[self.name]

    @property
    def completed(self) -> tuple[str, ...]:
        """Names of the models whose configuration was completed from their file."""
        return tuple(
            name for name in self.configs if not {"input", "output"} <= _written(self.folder, name).keys()
        )

    def run_by_us(self, names: Iterable[str]) -> TritonRepository:
        """Have our runner run models of the ONNX Runtime backend."""
        chosen = frozenset(names)
        configs = {
            name: onnx_config.by_our_runner(config) if name in chosen else config
            for name, config in self.configs.items()
        }
        return replace(self, configs=configs, by_runner=chosen)

    def with_called_models(self, names: Sequence[str]) -> TritonRepository:
        """Add models that the model calls itself, which its configuration does not list.

        Raises:
            RequestError: the repository has no such model.
        """
        return replace(self, configs={**self.configs, **_configs_of(self.folder, names)})

    def inputs(self) -> tuple[InputSpec, ...]:
        """Return the model's inputs."""
        return tuple(self._specs("input"))

    def outputs(self) -> tuple[InputSpec, ...]:
        """Return the model's outputs."""
        return tuple(self._specs("output"))

    def files(self) -> Iterable[Path]:
        """Yield all files of its entries."""
        for name in self.configs:
            yield from sorted(path for path in (self.folder / name).rglob("*") if path.is_file())

    def _specs(self, what: str) -> Iterable[InputSpec]:
        batch = (BATCH,) if self.config.get("max_batch_size", 0) else ()
        for tensor in self.config.get(what, ()):
            dims = (
                size if size > 0 else f"{tensor['name']}_dim{axis}"
                for axis, size in enumerate(tensor["dims"])
            )
            dtype = _DTYPES.get(str(tensor.get("data_type")), "")
            yield InputSpec(name=str(tensor["name"]), shape=(*batch, *dims), dtype=dtype)


def is_repository(folder: Path) -> bool:
    """Return whether a directory has model entries."""
    return bool(_entries(folder)) if folder.is_dir() else False


def _entries(folder: Path) -> list[str]:
    """Return the names of the models, which have a configuration, or a version with an ONNX file."""
    configured = {path.parent.name for path in folder.glob(f"*/{CONFIG}")}
    bare = {
        path.parent.parent.name
        for path in folder.glob(f"*/*/{onnx_config.FILE}")
        if path.parent.name.isdecimal()
    }
    return sorted(configured | bare)


def read_repository(folder: Path, name: str = "") -> TritonRepository:
    """Return a model's entry; without a name, the only ensemble or else the only model.

    Raises:
        RequestError: there is no such model, or its configuration cannot be read.
    """
    names = _entries(folder)
    if not name:
        ensembles = [model for model in names if is_ensemble(_config(folder, model))]
        candidates = ensembles or names
        if len(candidates) != 1:
            raise RequestError(
                f"'{folder}' has the models {', '.join(names) or '(none)'}; choose one: "
                f"repository:{folder}#{(candidates or ['model'])[0]}."
            )
        name = candidates[0]
    return TritonRepository(folder=folder, name=name, configs=_configs_of(folder, [name]))


def write_repository(target: Path, repository: TritonRepository, configs: Mapping[str, Config]) -> None:
    """Create a repository with a model's entries under other configurations, its files as links."""
    for name, config in configs.items():
        entry = target / name
        shutil.copytree(
            repository.folder / name, entry, copy_function=_link_file, ignore=shutil.ignore_patterns(CONFIG)
        )
        (entry / CONFIG).write_text(pbtxt.to_pbtxt(config), encoding="utf-8")
        if name in repository.by_runner:
            add_our_runner(entry)
        if is_ensemble(config):  # Triton requires a version directory, even an empty one
            (entry / "1").mkdir(exist_ok=True)


def backend_of(config: Config) -> str:
    """Return the name of a model's backend; empty if Triton runs it itself, or has to find out."""
    if is_ensemble(config):
        return ""
    return str(config.get("backend") or _PLATFORMS.get(str(config.get("platform", "")), ""))


_PLATFORMS = {
    "onnxruntime_onnx": "onnxruntime", "tensorrt_plan": "tensorrt", "pytorch_libtorch": "pytorch",
    "tensorflow_savedmodel": "tensorflow", "tensorflow_graphdef": "tensorflow",
}  # fmt: skip


def copy_files(repository: TritonRepository, entry: Path, config: Config) -> None:
    """Copy a model's files next to its configuration, in a directory NAME, NAME_NUMBER or NAME_default.

    A model of the ONNX Runtime backend that the configuration gives to the Python backend gets our runner.

    Raises:
        RequestError: the repository has no such model, or two, or the files cannot be copied.
    """
    plain, _, suffix = entry.name.rpartition("_")
    accepted = {entry.name, plain} if suffix.isdecimal() or suffix == "default" else {entry.name}
    names = sorted(name for name in accepted if name in _entries(repository.folder))
    if not names:
        raise RequestError(
            f"'{entry.name}' is not named after a model of the repository {repository.folder}."
        )
    if len(names) > 1:
        raise RequestError(
            f"'{entry.name}' may be the model '{names[1]}' or a configuration of '{names[0]}' of "
            f"{repository.folder}; rename one of them."
        )
    name = names[0]
    folder = repository.folder / name
    check_inside(
        (path for path in folder.rglob("*") if path.is_file()),
        repository.folder,
        "copy the file there",
    )
    try:
        shutil.copytree(
            folder,
            entry,
            ignore=shutil.ignore_patterns(CONFIG, "__pycache__"),
            dirs_exist_ok=True,
        )
        own_config = _config(repository.folder, name)
        if is_ensemble(own_config):
            (entry / "1").mkdir(exist_ok=True)
        if config.get("backend") == PYTHON != backend_of(own_config):
            add_our_runner(entry)
    except (OSError, shutil.Error) as error:
        raise RequestError(f"The files of '{name}' cannot be copied to {entry}: {error}") from error


def is_ensemble(config: Config) -> bool:
    """Return whether a model is an ensemble."""
    return config.get("platform") == "ensemble" or "ensemble_scheduling" in config


def _link_file(source: str, target: str) -> str:
    link_or_copy(Path(source), Path(target))
    return target


def _configs_of(folder: Path, names: Sequence[str]) -> dict[str, Config]:
    """Return the configurations of models, and of all models that they consist of."""
    configs: dict[str, Config] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop(0)
        if name not in configs:
            configs[name] = {"name": name, **_config(folder, name)}
            steps = configs[name].get("ensemble_scheduling", {}).get("step", ())
            waiting += [str(step.get("model_name", "")) for step in steps]
    return configs


def _config(folder: Path, name: str) -> Config:
    """Return a model's configuration, completed from its ONNX file if it has one."""
    config = _written(folder, name)
    file = None if is_ensemble(config) else onnx_config.onnx_file(folder / name, config)
    may_be_onnx = backend_of(config) in {"", onnx_config.BACKEND}
    return onnx_config.completed(config, file) if file is not None and may_be_onnx else config


def _written(folder: Path, name: str) -> Config:
    """Return the configuration that a model has in the repository; empty if it has only an ONNX file."""
    path = folder / name / CONFIG
    if not path.exists() and onnx_config.onnx_file(folder / name, {}) is not None:
        return {}
    try:
        return pbtxt.parse_pbtxt(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        available = ", ".join(_entries(folder))
        raise RequestError(
            f"The repository '{folder}' has no model '{name}' with a {CONFIG}; it has: {available or 'none'}."
        ) from error
    except RequestError as error:
        raise RequestError(f"'{path}' cannot be read: {error}.") from error
