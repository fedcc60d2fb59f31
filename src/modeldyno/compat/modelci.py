"""What scripts written for ModelCI import: its names, with its arguments, on this registry.

Enumerations may be those here, ModelCI's own or their names as text, in any case. A model that was registered
is a `Version`; where ModelCI takes an id, it or its name, such as ``"ResNet50/1"``, is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from modeldyno.base import plugins
from modeldyno.base.document import MeasuredAt
from modeldyno.base.errors import RequestError
from modeldyno.base.identity import new_identity
from modeldyno.base.job.input_spec import BATCH, DTYPES, InputSpec
from modeldyno.base.job.load_spec import Load
from modeldyno.base.job.version_name import (
    VersionName,
    engine_name,
    framework_name,
    name_from_label,
    task_name,
)
from modeldyno.base.result.result import Result
from modeldyno.compat.server_profiler import Diagnosis
from modeldyno.profiling.api.error_wording import as_reference
from modeldyno.registry import api as registry
from modeldyno.registry.records.records import AttachedDocument, Version
from modeldyno.registry.register import read_registration
from modeldyno.serving.load.foreign_load import ForeignLoad, foreign_result, reported_value

if TYPE_CHECKING:
    from modeldyno.base.metrics.measurement import Measurement

Framework = Enum("Framework", "TENSORFLOW PYTORCH SKLEARN XGBOOST LIGHTGBM", start=0)
Engine = Enum("Engine", "NONE TFS TORCHSCRIPT ONNX TRT TVM CUSTOMIZED PYTORCH", start=0)
Task = Enum("Task", "IMAGE_CLASSIFICATION OBJECT_DETECTION SEGMENTATION", start=0)
Metric = Enum("Metric", "ACC MAP IOU", start=0)
ModelInputFormat = Enum("ModelInputFormat", "FORMAT_NONE FORMAT_NHWC FORMAT_NCHW", start=0)


@dataclass(frozen=True, slots=True)
class IOShape:
    """Shape and type of an input or output; -1 first is the batch."""

    shape: Sequence[int]
    dtype: Any
    """``float``, a type of NumPy or torch, or text such as ``TYPE_FP32``."""
    name: str = ""
    format: Any = ModelInputFormat.FORMAT_NONE


def ModelVersion(version: str | int) -> int:
    """Return the number of a version."""
    return int(version)


def register_model(
    model: Any,
    *,
    dataset: str = "",
    metric: Mapping[Any, float] | None = None,
    task: Any = "",
    inputs: Iterable[Any] = (),
    outputs: Iterable[Any] = (),
    model_input: Any = None,
    architecture: str = "",
    framework: Any = "",
    engine: Any = "",
    version: Any = None,
    parent_model_id: str = "",
    convert: bool = True,
    profile: bool = True,
    trust: bool = False,
) -> list[Version]:
    """Register a model; a worker converts and measures it.

    Args:
        model: the path of its file, a live module, Keras model or estimator, or, as the only argument that
            describes it, an object or a mapping with ``weight``, ``architecture`` and so on.
        dataset: what it was trained on.
        metric: what you say of it, such as ``{Metric.ACC: 0.76}``.
        task: what it does.
        inputs: an `IOShape` for each input; of a live object, its example is made of them.
        outputs: an `IOShape` for each output: told beside it.
        model_input: the example of a live object.
        architecture: its name; by default that of its file.
        framework: kept as a label: it is read from the model.
        engine: kept as a label: it is read from the model.
        version: its number; by default the next one.
        parent_model_id: the version that it was made from.
        convert: queue the conversions of its policy.
        profile: queue its measurements.
        trust: allow its file to run code when it is loaded.

    Returns:
        A list of the version; `retrieve_model` finds it by the engines of its conversions as well.

    Raises:
        RequestError: it cannot be loaded, or its name or number is taken.
    """
    described = _described(model)
    if described is not None:
        if "weight" not in described:
            raise RequestError("The model to register names no file; give it as weight.")
        flags = {"convert": convert, "profile": profile, "trust": trust}
        return register_model(described.pop("weight"), **{**described, **flags})
    inputs, outputs = tuple(inputs), tuple(outputs)
    is_live = not isinstance(model, str | Path)
    specs = tuple(map(_spec_of, inputs))
    labels = {
        name: _word(each) for name, each in (("framework", framework), ("engine", engine)) if _word(each)
    }
    registered = registry.add(
        model,
        _example(model_input, specs) if is_live else None,
        name=name_from_label(architecture) if architecture else None,
        version=None if version is None else _number(version),
        inputs=() if is_live else specs,
        outputs=tuple(map(_spec_of, outputs)),
        layouts=dict(filter(None, map(_layout_of, (*inputs, *outputs)))),
        task=task_name(_word(task)),
        dataset=dataset,
        metrics={_word(name).lower(): value for name, value in (metric or {}).items()},
        labels={name: word for name, word in labels.items() if word},
        parent=_id_of(parent_model_id) if parent_model_id else "",
        convert=convert,
        profile=profile,
        trust=trust,
    )
    return [registered]


def register_model_from_yaml(file_path: str | Path, *, trust: bool = False) -> list[Version]:
    """Register what a YAML file of ModelCI describes, as ``modeldyno registry add -f`` does."""
    request = read_registration(Path(file_path), {"trust": trust})
    words = {name: getattr(request, name) for name in _OF_REGISTRATION}
    return [registry.add(request.model, version=request.number, **words)]


_OF_REGISTRATION = (
    "name", "inputs", "outputs", "layouts", "task", "dataset", "metrics", "labels", "evaluate", "data",
    "parent", "policy", "copy", "convert", "profile", "trust",
)  # fmt: skip


def retrieve_model(
    architecture: str = "",
    task: Any = "",
    framework: Any = "",
    engine: Any = "",
    version: Any = None,
    *,
    download: bool = True,
    architecture_name: str = "",
) -> list[Version]:
    """Find models; each is a model in every function, and `modeldyno.registry.get` copies its files.

    Args:
        architecture: its name.
        task: what it does.
        framework: its framework.
        engine: what runs it or a conversion of it.
        version: its number.
        download: has no effect, as files are fetched when they are used.
        architecture_name: the same as `architecture`.
    """
    return list(
        registry.retrieve(
            architecture or architecture_name,
            task=task_name(_word(task)),
            framework=framework_name(_word(framework).lower()),
            engine=engine_name(_word(engine)) if _word(engine) else "",
            version=None if version is None else _number(version),
        )
    )


def retrieve_model_by_task(task: Any) -> list[Version]:
    """Find the newest versions of the models with a task."""
    return retrieve_model(task=task)


def retrieve_model_by_parent_id(parent_id: Any) -> list[Version]:
    """Find the versions that were made from one."""
    parent = _id_of(parent_id)
    return list(registry.retrieve(parent.rpartition("/")[0], parent=parent))


def update_model(id: Any, schema: Any) -> Version:
    """Edit the metadata of a version: ``task``, ``dataset`` and ``metric`` of a mapping or an object.

    Raises:
        RequestError: something else is to be changed, which would make it another version.
    """
    described = _described(schema)
    if described is None:
        raise RequestError("What to change is a mapping, such as {'dataset': 'ImageNet'}.")
    if fixed := sorted(described.keys() - {"task", "dataset", "metric"}):
        raise RequestError(
            f"{fixed[0]} of a version never changes; register the model again, as another version."
        )
    metric = {_word(name).lower(): value for name, value in described.get("metric", {}).items()}
    task = described.get("task")
    return registry.update(
        _id_of(id),
        task=None if task is None else task_name(_word(task)),
        dataset=described.get("dataset"),
        metrics=metric or None,
    )


def delete_model(id_: Any) -> None:
    """Remove a version; its Results stay."""
    registry.rm(_id_of(id_))


delete_model_by_id = delete_model


# --- figures that were measured elsewhere -----------------------------------------------------------


def register_static_profiling_result(id_: Any, static_result: Any) -> AttachedDocument:
    """List what a call of a version costs, in place of what was listed before.

    Args:
        id_: the version.
        static_result: an object or a mapping with ``parameters``, ``flops``, ``memory``, ``mread`` and
            ``mwrite``; `modeldyno.inspect` counts these.
    """
    figures = (
        figure
        for name, metric in _STATIC.items()
        for figure in reported_value(metric, _positive(_read(static_result, name)))
    )
    return _list_figures(id_, tuple(figures), MeasuredAt(engine="static"), replace=True)


_STATIC = {
    "parameters": "parameters",
    "flops": "flops",
    "memory": "activation_peak",
    "mread": "bytes_read",
    "mwrite": "bytes_written",
}
"""Counts of ModelCI, and ours."""


def register_dynamic_profiling_result(id_: Any, dynamic_result: Any) -> AttachedDocument:
    """List a measurement under a version.

    Args:
        id_: the version.
        dynamic_result: an object or a mapping with ``ip``, ``device_id``, ``batch``, ``memory``, ``latency``
            and ``throughput``: seconds, bytes and samples per second, and what is 0 was not measured. Or a
            `Diagnosis`, or a `Result`.

    Returns:
        What is listed; `modeldyno.registry.show` has all of a version, as ``measurements``.
    """
    return _list_dynamic(id_, dynamic_result, replace=False)


append_dynamic_profiling_result = register_dynamic_profiling_result


def update_dynamic_profiling_result(
    id_: Any, dynamic_result: Any, *, force_insert: bool = False
) -> AttachedDocument:
    """List a measurement in place of that of the same host, device, engine and batch size.

    Raises:
        RequestError: there is none, and `force_insert` was not given.
    """
    place = _place_of(id_, dynamic_result)
    if not force_insert:
        with plugins.store() as store:
            version = store.registry.version(VersionName.parse(_id_of(id_)))
            if place not in {one.at for one in store.registry.attached(version)}:
                raise RequestError(
                    f"{version.name} has no measurement of {place.host or 'this host'}, {place.device}, "
                    f"{place.engine} and batch size {place.batch_size}; give force_insert=True to add it."
                )
    return _list_dynamic(id_, dynamic_result, replace=True)


def delete_dynamic_profiling_result(
    id_: Any, dynamic_result_ip: Any, dynamic_result_device_id: str
) -> tuple[AttachedDocument, ...]:
    """List the measurements of a host and a device no more; they stay in the store.

    Raises:
        RequestError: there is none.
    """
    return registry.detach(_id_of(id_), host=str(dynamic_result_ip), device=dynamic_result_device_id)


def _place_of(id_: Any, dynamic: Any) -> MeasuredAt:
    """Return host, device, engine and batch size of a measurement; the engine of numbers is the version's."""
    if isinstance(dynamic, Result):
        return dynamic.measured_at
    if isinstance(dynamic, Diagnosis):
        host = (dynamic["address"] or "").rpartition(":")[0]
        own = dynamic.result.measured_at
        return MeasuredAt(
            host=host or own.host,
            device=dynamic["device_id"],
            engine=dynamic["engine"],
            batch_size=dynamic["batch_size"],
        )
    version = registry.show(_id_of(id_)).version
    batch = _positive(_read(dynamic, "batch"))
    return MeasuredAt(
        host=_word(_read(dynamic, "ip")) or "127.0.0.1",
        device=_word(_read(dynamic, "device_id")),
        engine=engine_name(version.labels.get("engine", version.kind)),
        batch_size=1 if batch is None else round(batch),
    )


def _list_dynamic(id_: Any, dynamic: Any, *, replace: bool) -> AttachedDocument:
    place = _place_of(id_, dynamic)
    if isinstance(dynamic, Result | Diagnosis):
        result = dynamic if isinstance(dynamic, Result) else dynamic.result
        return registry.attach(_id_of(id_), result, **asdict(place), replace=replace)
    return _list_figures(id_, tuple(_dynamic_figures(dynamic, place)), place, replace=replace)


def _dynamic_figures(dynamic: Any, place: MeasuredAt) -> Iterator[Measurement]:
    """Yield the figures of a measurement of ModelCI in base units; what is 0 was not measured."""
    times, memory, rates = (_read(dynamic, name) for name in ("latency", "memory", "throughput"))
    inference = _read(times, "inference_latency")
    for theirs, statistic in _STATISTICS.items():
        yield from reported_value("latency", _positive(_read(inference, theirs)), statistic)
    yield from reported_value("load_time", _positive(_read(_read(times, "init_latency"), "avg")))
    for stage in ("preprocess", "postprocess"):
        mean = _positive(_read(_read(times, f"{stage}_latency"), "avg"))
        yield from reported_value("stage_time", mean, stage)
    rate = _read(rates, "inference_throughput")
    yield from reported_value("throughput", _positive(rate if isinstance(rate, Real) else _read(rate, "avg")))
    for theirs, metric in _MEMORY.items():
        yield from reported_value(metric, _positive(_read(memory, theirs)), place.device)


_STATISTICS = {"avg": "mean", "p50": "p50", "p95": "p95", "p99": "p99"}
_MEMORY = {"total_memory": "device_total", "memory_usage": "device_used", "utilization": "gpu_utilization"}


def _list_figures(
    id_: Any, figures: tuple[Measurement, ...], place: MeasuredAt, *, replace: bool
) -> AttachedDocument:
    """Store figures that another tool measured as a Result, and list it under a version.

    Raises:
        RequestError: there is no figure, or no such version.
    """
    name = _id_of(id_)
    if not figures:
        raise RequestError(f"The profiling result for {name} has no figure above 0.")
    identity = new_identity()
    load = ForeignLoad(
        tool="ModelCI",
        model=VersionName.parse(name).model,
        created=identity["created"],
        load=Load(concurrency=1),
        config={"batch_size": place.batch_size, **({"device": place.device} if place.device else {})},
        figures=figures,
    )
    result = foreign_result(load, id=identity["id"], origin="its profiling result", digest="")
    return registry.attach(name, result, **asdict(place), replace=replace)


def _positive(value: Any) -> float | None:
    """Return a number above 0, or None: ModelCI has 0 where nothing was measured.

    Raises:
        RequestError: it is no number.
    """
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise RequestError(f"{value!r} in the profiling result is no number.") from None
    return number if number > 0 else None


# --- words, shapes and examples ---------------------------------------------------------------------


def _word(value: Any) -> str:
    """Return the name of a member of an enumeration, or text as it is; empty for None."""
    return "" if value is None else str(getattr(value, "name", value))


def _number(version: Any) -> int:
    try:
        return int(getattr(version, "ver", version))
    except (TypeError, ValueError):
        raise RequestError(f"version is a number from 1, not '{version}'.") from None


def _id_of(value: Any) -> str:
    return str(as_reference(value))


_DESCRIBED = (
    "weight", "architecture", "framework", "engine", "version", "dataset", "metric", "task", "inputs",
    "outputs", "parent_model_id",
)  # fmt: skip


def _described(model: Any) -> dict[str, Any] | None:
    """Return what a mapping or a model of ModelCI says; None for anything else."""
    if isinstance(model, Mapping):
        words = dict(model)
    elif not isinstance(model, str | Path | Version) and hasattr(model, "architecture"):
        words = {name: getattr(model, name, None) for name in _DESCRIBED}
    else:
        return None
    weight = words.get("weight")
    if weight is not None and hasattr(weight, "file"):
        words["weight"] = weight.file
    if unknown := sorted(words.keys() - set(_DESCRIBED)):
        raise RequestError(f"ModelCI's models have no '{unknown[0]}'; known: {', '.join(_DESCRIBED)}.")
    return {name: value for name, value in words.items() if value not in (None, "", [], {})}


def _read(shape: Any, name: str) -> Any:
    return shape.get(name) if isinstance(shape, Mapping) else getattr(shape, name, None)


def _spec_of(shape: Any) -> InputSpec:
    """Return an `IOShape`, or a mapping with its fields, as an input."""
    sizes = _read(shape, "shape")
    if not isinstance(sizes, Iterable) or isinstance(sizes, str):
        raise RequestError(f"{shape!r} has no shape; write IOShape([-1, 3, 224, 224], float, name='x').")
    sizes = tuple(BATCH if at == 0 and size == -1 else size for at, size in enumerate(sizes))
    if not all(size == BATCH or (isinstance(size, int) and size > 0) for size in sizes):
        raise RequestError(f"{sizes} is no shape; only the first size may be -1, which is the batch.")
    return InputSpec(name=_word(_read(shape, "name")), shape=sizes, dtype=_dtype(_read(shape, "dtype")))


def _dtype(value: Any) -> str:
    """Return the name of a type: of Python, NumPy, torch or TensorFlow, or of Triton's.

    Raises:
        RequestError: it is none.
    """
    text = _PYTHON.get(value) if isinstance(value, type) else None
    text = text or getattr(value, "name", None) or getattr(value, "__name__", None) or str(value)
    word = text.rpartition(".")[2].removeprefix("TYPE_").lower()
    word = _PYTHON_WORDS.get(word, word.replace("fp", "float"))
    if word not in DTYPES:
        raise RequestError(f"{value} is no type of a tensor; known: {', '.join(DTYPES)}.")
    return word


_PYTHON: dict[Any, str] = {float: "float32", int: "int32", bool: "bool", str: "string"}
"""As ModelCI reads types of Python."""
_PYTHON_WORDS = {"float": "float32", "double": "float64", "half": "float16", "int": "int32", "long": "int64"}


def _layout_of(shape: Any) -> tuple[str, str] | None:
    layout = _word(_read(shape, "format")).upper().removeprefix("FORMAT_")
    return (_word(_read(shape, "name")), layout) if layout not in {"", "NONE", "0"} else None


def _example(model_input: Any, specs: Sequence[InputSpec]) -> Any:
    """Return inputs of a live object: what was given, or arrays of the shapes."""
    if model_input is not None:
        return tuple(model_input) if isinstance(model_input, list) else model_input
    arrays = [_array(spec) for spec in specs]
    if arrays and all(spec.name for spec in specs):
        return {spec.name: array for spec, array in zip(specs, arrays, strict=True)}
    return tuple(arrays) or None


def _array(spec: InputSpec) -> Any:
    shape = tuple(size if isinstance(size, int) else 1 for size in spec.shape or ())
    numbers = np.random.default_rng(0).random(shape)
    return (numbers > 1 / 2 if spec.dtype == "bool" else numbers).astype(spec.dtype)
