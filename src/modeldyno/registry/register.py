"""Register a model: identify it, keep its files, give it a number, and queue what is to be done with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, fields, replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base import yaml_file
from modeldyno.base.codec.numbers import check_numbers
from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.identity import actor, new_identity
from modeldyno.base.job.input_spec import BATCH, InputSpec, parse_input
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.job.version_name import (
    SOURCE,
    ModelCiPath,
    VersionName,
    check_description,
    check_model_name,
    name_from_label,
    task_name,
)
from modeldyno.base.system.inside_folder import check_inside
from modeldyno.engine.runtime.identify import identify_model
from modeldyno.engine.runtime.supervised_child import ChildLimits
from modeldyno.profiling import mlflow_version
from modeldyno.profiling.resolve_model import resolve_reference
from modeldyno.registry import conversions, evaluation_data, weights
from modeldyno.registry.policies import find_policy
from modeldyno.registry.records.policy import conversion_tasks, profile_tasks
from modeldyno.registry.records.records import Variant, VariantState, Version
from modeldyno.registry.registered_version import reference_here
from modeldyno.registry.targets import known_target, target_here
from modeldyno.serving.servers import triton_config

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from modeldyno.engine.runtime.identify import IdentifiedModel
    from modeldyno.registry.interface import Registry
    from modeldyno.registry.records.policy import Policy
    from modeldyno.registry.records.records import EvaluationData, Task, WeightFile

SOURCE_LABEL, CREATED_LABEL, RUN_LABEL = "mlflow.version", "mlflow.created", "mlflow.run"
"""Labels of what came from MLflow: ``models:/name/3``, when that was made, and the id of its run."""
_ORIGIN_LABELS = (SOURCE_LABEL, CREATED_LABEL, RUN_LABEL)
_SOURCE_WHY = "the registered model itself"
_FLAGS = ("copy", "convert", "profile", "trust")
_TABLES = ("metrics", "labels", "layouts")
_TENSORS = ("inputs", "outputs")
_BOOLEANS = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What a user says of a model."""

    model: str
    name: str | None = None
    """By default that of its file."""
    number: int | None = None
    """By default the next one."""
    inputs: tuple[str | InputSpec, ...] = ()
    """What it is measured with, such as ``x=1x8``; by default what it declares. Files stay where they are."""
    outputs: tuple[str | InputSpec, ...] = ()
    """What it gives, in the same words: told, and not checked."""
    layouts: Mapping[str, str] = field(default_factory=dict)
    """Order of the axes by the name of an input or output, such as ``NCHW``."""
    task: str = ""
    dataset: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    evaluate: tuple[str, ...] = ()
    """Metrics of the labelled samples in `data` that each variant is evaluated by."""
    data: str = ""
    """A file of labelled samples, perhaps followed by ``:`` and the name of its labels."""
    parent: str = ""
    policy: str = "default"
    copy: bool = True
    """Whether its files are kept in the store; otherwise they are used where they are."""
    convert: bool = True
    profile: bool = True
    trust: bool = False
    creator: str = ""
    public_reference: str = ""
    """The reference that is told, where its path says nothing; by default its own."""
    limits: ChildLimits | None = None
    """What loading it may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """What came of it."""

    version: Version
    new: bool
    """False if this content was registered under this name before."""
    queued: int
    """Tasks that it has queued."""
    earlier: int
    """Results of the same model that were in the store already."""
    workers: int
    """Workers that are there to do them."""

    @property
    def shapeless(self) -> tuple[str, ...]:
        """Inputs of a model of torch whose shape nobody has said, without which it cannot be measured."""
        if self.version.framework != "torch" or self.version.measured_with:
            return ()
        return tuple(spec.name for spec in self.version.inputs if spec.shape is None and spec.source is None)


_OF_MODELCI = {
    "weight": "model", "architecture": "name", "metric": "metrics", "parent_model_id": "parent",
}  # fmt: skip
"""Keys of ModelCI's files, and what they are called here."""
_LABELLED = ("framework", "engine")
"""What ModelCI's files and paths say, kept as labels: both are read from the model."""
_INTERNAL = {"number", "creator", "public_reference", "limits"}


def read_registration(path: Path, overrides: Mapping[str, Any]) -> Registration:
    """Read what is said of a model from a YAML file; what is given otherwise comes before the file.

    The keys are those of `Registration`, ``version`` for its number, and those of ModelCI.

    Raises:
        RequestError: the file cannot be read, or a key or value in it is wrong; it names the line.
    """
    config = yaml_file.read_yaml_file(path)
    values = {**registration_values(config.tree, config.at), **overrides}
    if "model" not in values:
        raise RequestError(f"{path} names no model; add the line model: path/to/model.onnx.")
    return Registration(**values)


def registration_values(
    words: Mapping[str, Any], at: Callable[[str], AbstractContextManager[Any]] = nullcontext
) -> dict[str, Any]:
    """Return the fields of a `Registration` that a file or a form says.

    Args:
        words: text by key, a table or a list where the key takes one.
        at: a context that says where a key is, if something is wrong there.

    Raises:
        RequestError: a key or value is wrong.
    """
    keys = ({field.name for field in fields(Registration)} | {"version"}) - _INTERNAL
    values: dict[str, Any] = {}
    labels: dict[str, str] = {}
    for key, value in words.items():
        with at(key):
            if key in _LABELLED:
                labels[key] = str(value)
                continue
            word = _OF_MODELCI.get(key, key)
            if word not in keys:
                raise UnknownName.among("key of a registration", key, keys)
            name = "number" if word == "version" else word
            if name in values:
                raise RequestError(f"'{key}' says again what '{word}' says; leave one of them out.")
            values[name] = _value(word, value)
            if word in _TENSORS and (layouts := _layouts(value)):
                values["layouts"] = {**values.get("layouts", {}), **layouts}
    if labels:
        values["labels"] = {**labels, **values.get("labels", {})}
    return values


def named_metrics(value: str | Sequence[Any]) -> tuple[str, ...]:
    """Return the names of metrics, given as a list or separated by commas."""
    texts = value.split(",") if isinstance(value, str) else map(str, value)
    return tuple(text.strip() for text in texts if text.strip())


def as_metric(name: str, text: Any) -> float:
    """Read what a maker says of a model: a number, or a percentage, which is a fraction.

    Raises:
        RequestError: it is neither, or no finite one.
    """
    with suppress(ValueError):
        word = str(text).strip()
        if isfinite(number := float(word[:-1]) / 100 if word.endswith("%") else float(word)):
            return number
    raise RequestError(f"The metric {name}={text} is no number; write {name}=0.76.")


def _value(key: str, value: Any) -> Any:
    if key in _TABLES:
        if not isinstance(value, dict):
            raise RequestError(f"{key} is a table, such as {key}: {{accuracy: 0.76}}.")
        return {
            name: as_metric(name, text) if key == "metrics" else str(text) for name, text in value.items()
        }
    text = str(value).strip()
    if key in _FLAGS:
        if text.lower() not in _BOOLEANS:
            raise RequestError(f"{key} is yes or no, not '{text}'.")
        return _BOOLEANS[text.lower()]
    if key == "evaluate":
        return named_metrics(value)
    if key in _TENSORS:
        return tuple(map(_input, value if isinstance(value, list) else [value]))
    if key == "version":
        if not text.isdigit() or not int(text):
            raise RequestError(f"version is a number from 1, not '{text}'.")
        return int(text)
    return text


def _input(value: Any) -> InputSpec:
    """Read an input as ``--input`` takes it, or as a table in the words of ModelCI or of Triton.

    The first free size of a table is the batch, and others have to be numbers.
    """
    if not isinstance(value, dict):
        return parse_input(str(value).strip())
    if not value.keys() >= _OF_INPUT or not isinstance(shape := value["shape"], list):
        raise RequestError(
            "An input is name=8x128:int64, a file, or a table, such as {name: x, shape: [-1, 8]}."
        )
    dtype = str(value.get("dtype", "")).upper()
    sizes = [
        BATCH if position == 0 and str(size) == "-1" else str(size) for position, size in enumerate(shape)
    ]
    text = f"{value['name']}={'x'.join(sizes) or 'scalar'}"
    return parse_input(f"{text}:{_DTYPES.get(dtype, dtype.lower())}" if dtype else text)


def _layouts(value: Any) -> dict[str, str]:
    """Return the ``format`` of tensors in tables by their name, such as ``NCHW`` of ``FORMAT_NCHW``."""
    tables = [one for one in value if isinstance(one, dict)] if isinstance(value, list) else [value]
    words = {
        str(one["name"]): str(one["format"]).upper().removeprefix("FORMAT_")
        for one in tables
        if isinstance(one, dict) and "format" in one
    }
    return {name: layout for name, layout in words.items() if layout not in _NO_LAYOUT}


_NO_LAYOUT = {"", "NONE"}
_OF_INPUT = frozenset({"name", "shape"})
_DTYPES = {word: dtype for dtype, word in triton_config.DTYPES.items()}


def _as_specs(items: Iterable[str | InputSpec]) -> Iterator[InputSpec]:
    for item in items:
        yield parse_input(item) if isinstance(item, str) else item


def _where_it_is(spec: InputSpec) -> InputSpec:
    """Return an input whose file is found from any folder.

    Raises:
        RequestError: there is no such file.
    """
    if spec.source is None:
        return spec
    path = Path(spec.source).expanduser().absolute()
    if not path.exists():
        raise RequestError(f"There is no file {spec.source}; check the path of the input.")
    return replace(spec, source=str(path))


def register(request: Registration, registry: Registry) -> Registered:
    """Register a model; the same content under the same name is the same version.

    Raises:
        RequestError: the model cannot be loaded, or its name or number is taken.
        TrustRequired: its file runs code, and `trust` was not given.
        MissingExtra: an optional package is not installed.
        StoreError: its files or the registry cannot be written.
    """
    request = with_mlflow_words(with_modelci_words(request))
    ref = resolve_reference(request.model)
    if ref.scheme == "url":
        raise RequestError(
            f"{ref.locator} is a server, which keeps no version of a model; register the one that it serves."
        )
    policy = find_policy(registry, request.policy)
    parent = registry.version(VersionName.parse(request.parent)).name if request.parent else ""
    if request.name is not None:
        check_model_name(request.name)
    check_numbers({"metrics": request.metrics}, "registration")
    check_description(request.labels, task=request.task, dataset=request.dataset)
    evaluation_data.check(request.evaluate, request.data)
    measured_with = tuple(map(_where_it_is, _as_specs(request.inputs)))
    identified = identify_model(ref, trust=request.trust, limits=request.limits)
    files: tuple[WeightFile, ...] = ()
    entry = ""
    if request.copy and identified.files:
        root, entry = _root_and_entry(ref, identified)
        files = weights.keep([*map(Path, identified.files)], root, weights.place(registry.weights))
    evaluation = evaluation_data.keep(request.evaluate, request.data, registry)
    draft = Version(
        model=request.name or _name_of_file(identified),
        number=0,
        created=new_identity()["created"],
        creator=request.creator or actor(),
        reference=request.public_reference or str(_absolute(ref)),
        digest=identified.identity.digest,
        framework=identified.identity.framework,
        kind=identified.kind,
        backend=identified.backend,
        inputs=identified.inputs,
        measured_with=measured_with,
        outputs=tuple(_as_specs(request.outputs)),
        layouts=dict(request.layouts),
        files=files,
        entry=entry,
        task=request.task,
        dataset=request.dataset,
        metrics=dict(request.metrics),
        labels=dict(request.labels),
        evaluation=evaluation,
        parent=parent,
        policy=policy.name,
        trust=request.trust,
    )
    version, new = registry.add_version(draft, number=request.number)
    origin = {label: text for label, text in request.labels.items() if label in _ORIGIN_LABELS}
    if new:
        registry.put_variant(_source(version), version.creator)
    elif changes := _changes_to_registered(version, origin, evaluation, measured_with, registry):
        version = registry.change_version(version, actor(), **changes)
    queued = registry.enqueue(
        tuple(first_tasks(version, policy, registry, convert=request.convert, profile=request.profile))
    )
    return Registered(
        version=version,
        new=new,
        queued=queued,
        earlier=len(registry.results_of([version.digest])),
        workers=len(registry.workers()),
    )


def _changes_to_registered(
    version: Version,
    origin: Mapping[str, str],
    evaluation: EvaluationData | None,
    measured_with: tuple[InputSpec, ...],
    registry: Registry,
) -> dict[str, Any]:
    """Return what is said of a version that was registered before and is not known of it.

    Raises:
        RequestError: it has figures, which are of other inputs.
    """
    changes: dict[str, Any] = {}
    if version.labels != {**version.labels, **origin}:
        changes["labels"] = {**version.labels, **origin}
    if evaluation is not None and version.evaluation != evaluation:
        changes["evaluation"] = evaluation
    if measured_with and version.measured_with != measured_with:
        if any(registry.figures(version.model, version.number)):
            raise RequestError(
                f"This model is registered as {version.name}, whose figures are of other inputs; register it "
                "under another `name`."
            )
        changes["measured_with"] = measured_with
    return changes


def with_modelci_words(request: Registration) -> Registration:
    """Complete a registration by the path of a model in ModelCI's folder: its name, number and task.

    An archive of TorchScript is ``1.zip`` there, as one of a SavedModel: the path says which it is.
    """
    request = replace(request, task=task_name(request.task))
    ref = ModelRef.parse(request.model)
    path = Path(ref.locator).expanduser()
    described = ModelCiPath.parse(path.absolute()) if path.exists() else None
    if described is None:
        return request
    is_script = not ref.scheme and (described.engine, path.suffix) == (_TORCHSCRIPT, ".zip")
    return replace(
        request,
        model=f"{_TORCHSCRIPT}:{path}" if is_script else request.model,
        name=request.name or name_from_label(described.architecture),
        number=request.number or described.version,
        task=request.task or described.task,
        labels={"framework": described.framework, "engine": described.engine, **request.labels},
    )


_TORCHSCRIPT = "torchscript"


def with_mlflow_words(request: Registration) -> Registration:
    """Complete a registration of ``models:/name/3``: its files are fetched, and labels say where from.

    Raises:
        RequestError: there is no such version, or its form cannot be loaded.
        MissingExtra: MLflow is not installed.
    """
    if ModelRef.parse(request.model).scheme != mlflow_version.SCHEME:
        return request
    version = mlflow_version.fetch_mlflow_version(request.model)
    source = {SOURCE_LABEL: version.reference, CREATED_LABEL: version.created, RUN_LABEL: version.run}
    return replace(
        request,
        model=str(version.ref),
        name=request.name or name_from_label(version.name),
        labels={**{label: text for label, text in source.items() if text}, **request.labels},
    )


def first_tasks(
    version: Version, policy: Policy, registry: Registry, *, convert: bool = True, profile: bool = True
) -> Iterator[Task]:
    """Yield what a version needs: its figures on each target, and its conversions.

    The targets are those of the workers that are there, or this machine's processor if there are none. A
    figure that is there is not measured again, nor a variant converted again.
    """
    variants = {variant.recipe: variant for variant in registry.variants(version)}
    if profile:
        there = {figure.key for figure in registry.figures(version.model, version.number)}
        for target in targets_of(registry):
            for variant in variants.values():
                if variant.usable:
                    tasks = profile_tasks(variant, policy, target, version)
                    yield from (task for task in tasks if task.key not in there)
    if convert:
        yield from (
            task
            for task in conversion_tasks(version, policy)
            if task.recipe not in variants and conversions.takes(task.recipe, version.kind)
        )


def targets_of(registry: Registry) -> tuple[str, ...]:
    """Return the ids of the targets that figures are wanted on."""
    if serving := {worker.target for worker in registry.workers()}:
        return tuple(sorted(serving))
    here = known_target(target_here(), registry)
    registry.put_target(here)
    return (here.id,)


def located(registered: Version | Variant, registry: Registry) -> ModelRef:
    """Return the reference by which a version or a variant is loaded on this machine.

    Raises:
        StoreError: its files are gone or damaged.
    """
    return replace(resolve_reference(reference_here(registered, registry)), registered=registered.name)


def _name_of_file(identified: IdentifiedModel) -> str:
    """Return the name of a model that was given none.

    Raises:
        RequestError: its file is called by a number, which lists would take for a version.
    """
    name = name_from_label(identified.identity.name)
    if name.isdigit():
        raise RequestError(f"The model's file is called {name}, which is no name; say it with `name`.")
    return name


def _source(version: Version) -> Variant:
    return Variant(
        model=version.model,
        number=version.number,
        recipe=SOURCE,
        state=VariantState.AGREES,
        why=_SOURCE_WHY,
        reference=version.reference,
        backend=version.backend,
        digest=version.digest,
    )


def _root_and_entry(ref: ModelRef, identified: IdentifiedModel) -> tuple[Path, str]:
    """Return the folder that a model's files are relative to, and what is loaded in it."""
    path = Path(ref.locator).expanduser().absolute()
    if path.is_dir():
        check_inside(
            map(Path, identified.files),
            path,
            "copy the file there, or register the model without copying it, to use it where it is",
        )
        return path, "."
    outside = [file for file in identified.files if not Path(file).is_relative_to(path.parent)]
    if outside:
        raise RequestError(
            f"{path} needs {outside[0]}, which is outside its folder; move it there, or register the model "
            "without copying it, to use it where it is."
        )
    return path.parent, path.name


def _absolute(ref: ModelRef) -> str:
    """Return a reference whose path does not depend on the working directory."""
    locator, colon, rest = ref.locator, "", ""
    if ".py:" in locator:
        locator, colon, rest = ref.locator.partition(":")
    path = Path(locator).expanduser()
    absolute = str(path.absolute()) if path.exists() else locator
    return f"{ref.scheme}:{absolute}{colon}{rest}"
