"""A model repository of Triton's that is there already: a model of it, and those that it is made of."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.core.spec.input_spec import BATCH, InputSpec
from modeldyno.errors import RequestError
from modeldyno.servers import pbtxt, triton_config
from modeldyno.servers.file_cache import link
from modeldyno.servers.triton_config import DTYPES, Config

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CONFIG = "config.pbtxt"
_DTYPES = {theirs: ours for ours, theirs in DTYPES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """A model of a repository."""

    folder: Path
    name: str
    configs: Mapping[str, Config]
    """Of the model, which is the first, and of those that it is made of, by their names."""

    @property
    def config(self) -> Config:
        """Of the model itself."""
        return self.configs[self.name]

    @property
    def ensemble(self) -> bool:
        """Whether the model is made of others."""
        return is_ensemble(self.config)

    def with_called(self, names: Sequence[str]) -> Repository:
        """Add models that it calls by itself, which its configuration does not tell.

        Raises:
            RequestError: the repository has none of that name.
        """
        return replace(self, configs={**self.configs, **_together(self.folder, names)})

    def inputs(self) -> tuple[InputSpec, ...]:
        """Give what the model takes."""
        return tuple(self._specs("input"))

    def outputs(self) -> tuple[InputSpec, ...]:
        """Give what it returns."""
        return tuple(self._specs("output"))

    def files(self) -> Iterable[Path]:
        """Give all files of its entries."""
        for name in self.configs:
            yield from sorted(path for path in (self.folder / name).rglob("*") if path.is_file())

    def _specs(self, what: str) -> Iterable[InputSpec]:
        batch = (BATCH,) if self.config.get("max_batch_size", 0) else ()
        for each in self.config.get(what, ()):
            dims = (
                size if size > 0 else f"{each['name']}_dim{axis}" for axis, size in enumerate(each["dims"])
            )
            dtype = _DTYPES.get(str(each.get("data_type")), "")
            yield InputSpec(name=str(each["name"]), shape=(*batch, *dims), dtype=dtype)


def is_repository(folder: Path) -> bool:
    """Say whether a directory has entries of models."""
    return any(folder.glob(f"*/{CONFIG}")) if folder.is_dir() else False


def read(folder: Path, name: str = "") -> Repository:
    """Read the entry of a model; without a name it is the only ensemble, or the only model.

    Raises:
        RequestError: there is no such model, or its configuration cannot be read.
    """
    known = sorted(path.parent.name for path in folder.glob(f"*/{CONFIG}"))
    if not name:
        ensembles = [each for each in known if is_ensemble(_config(folder, each))]
        choice = ensembles or known
        if len(choice) != 1:
            raise RequestError(
                f"'{folder}' has the models {', '.join(known) or 'of nobody'}; name one: "
                f"repository:{folder}#{(choice or ['model'])[0]}."
            )
        name = choice[0]
    return Repository(folder=folder, name=name, configs=_together(folder, [name]))


def write(place: Path, found: Repository, configs: Mapping[str, Config]) -> None:
    """Make a repository with the entries of a model under other configurations, its files as links."""
    for name, config in configs.items():
        entry = place / name
        shutil.copytree(
            found.folder / name, entry, copy_function=_linked, ignore=shutil.ignore_patterns(CONFIG)
        )
        (entry / CONFIG).write_text(triton_config.text(config), encoding="utf-8")
        if is_ensemble(config):  # Triton wants a directory of a version, also where there is nothing in it
            (entry / "1").mkdir(exist_ok=True)


def backend_of(config: Config) -> str:
    """Name what runs a model; nothing where Triton does that itself, or is to find out."""
    if is_ensemble(config):
        return ""
    return str(config.get("backend") or _PLATFORMS.get(str(config.get("platform", "")), ""))


_PLATFORMS = {
    "onnxruntime_onnx": "onnxruntime", "tensorrt_plan": "tensorrt", "pytorch_libtorch": "pytorch",
    "tensorflow_savedmodel": "tensorflow", "tensorflow_graphdef": "tensorflow",
}  # fmt: skip


def copy_files(found: Repository, entry: Path) -> None:
    """Copy the files of a model beside a configuration of it, in a directory named NAME or NAME_SUFFIX.

    Raises:
        RequestError: the repository has no such model, or the files cannot be copied.
    """
    names = [name for name in found.configs if entry.name == name or entry.name.startswith(f"{name}_")]
    if not names:
        raise RequestError(f"'{entry.name}' is named for no model of the repository {found.folder}.")
    name = max(names, key=len)
    try:
        shutil.copytree(found.folder / name, entry, ignore=shutil.ignore_patterns(CONFIG), dirs_exist_ok=True)
        if is_ensemble(found.configs[name]):
            (entry / "1").mkdir(exist_ok=True)
    except (OSError, shutil.Error) as error:
        raise RequestError(f"The files of '{name}' cannot be copied to {entry}: {error}") from error


def is_ensemble(config: Config) -> bool:
    """Say whether a model is made of others."""
    return config.get("platform") == "ensemble" or "ensemble_scheduling" in config


def _linked(source: str, target: str) -> str:
    link(Path(source), Path(target))
    return target


def _together(folder: Path, names: Sequence[str]) -> dict[str, Config]:
    """Read the configurations of models, and of all that they are made of."""
    found: dict[str, Config] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop(0)
        if name not in found:
            found[name] = {"name": name, **_config(folder, name)}
            steps = found[name].get("ensemble_scheduling", {}).get("step", ())
            waiting += [str(step.get("model_name", "")) for step in steps]
    return found


def _config(folder: Path, name: str) -> Config:
    path = folder / name / CONFIG
    try:
        return pbtxt.parsed(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        known = ", ".join(sorted(path.parent.name for path in folder.glob(f"*/{CONFIG}")))
        raise RequestError(
            f"The repository '{folder}' has no model '{name}' with a {CONFIG}; it has {known or 'none'}."
        ) from error
    except RequestError as error:
        raise RequestError(f"'{path}' cannot be read: {error}.") from error
