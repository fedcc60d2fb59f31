"""Convert a model by several recipes, each in a process of its own, and judge what each made of it."""

from __future__ import annotations

import re
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.identity import new_identity
from modeldyno.base.system.temporary_folder import own_folder
from modeldyno.conversion.agreement.conversion import Conversion, Converted
from modeldyno.conversion.agreement.conversion import ConversionFailureKind as Kind
from modeldyno.conversion.child import order_processes
from modeldyno.conversion.failures import failure
from modeldyno.conversion.recipe import UNCHECKED, ConversionOrder, ConversionOutcome, run_order
from modeldyno.conversion.reference import stored_reference
from modeldyno.conversion.reproduce import write_script
from modeldyno.conversion.request import possible_recipes
from modeldyno.conversion.verify import name_of
from modeldyno.engine.environment import machine
from modeldyno.profiling.request import parse_function

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from modeldyno.base.job.input_spec import InputSpec
    from modeldyno.conversion.agreement.rule import Tolerance
    from modeldyno.conversion.reference import Reference
    from modeldyno.conversion.request import ConversionRequest

_FRAMEWORKS = ("numpy", "torch", "onnx", "onnxscript", "onnxruntime", "openvino", "transformers", "keras",
               "tensorflow", "scikit-learn", "xgboost", "lightgbm", "skl2onnx", "onnxmltools", "tensorrt",
               "tensorrt-rtx", "hummingbird-ml", "onnx2torch")  # fmt: skip
"""Packages whose versions a conversion records."""


def convert(
    request: ConversionRequest,
    *,
    in_process: bool = False,
    kept: Path | None = None,
    watch: Callable[[str, str], None] = lambda _recipe, _stage: None,
) -> Conversion:
    """Convert a model, and compare every file with the source.

    The source runs once, whatever the number of recipes. Each recipe has a process of its own (the first goes
    on in that of the source); what goes wrong in it is its `failure`, and the others go on. A file whose
    outputs differ is kept under another name.

    Args:
        request: the model, the recipes, and where the files go.
        in_process: run everything in this process: for a live object, or a debugger. There is no time limit.
        kept: the folder of what this source returned for these inputs, which is filled if it is empty:
            another conversion need not run the source again. The caller names it for both.
        watch: called with the recipe (empty for the source) and what it does.

    Raises:
        RequestError: the request is wrong, so that nothing was converted.
        MissingExtra: the source needs a package that is not installed.
    """
    request, ref = request.resolve()
    inputs = request.requested_inputs()
    plugins.require(plugins.loader(ref.scheme).requires, f"model {ref.argument}")
    identity = new_identity()
    with _reference_folder(kept) as scratch, _runner(request, watch, in_process=in_process) as run:
        order = ConversionOrder(
            model=ref,
            inputs=inputs,
            seed=request.seed,
            trust=request.trust,
            reference=scratch,
            evaluate=request.metrics(),
            labelled=request.labelled(),
            tolerance=request.wider(),
            verify=parse_function(request.verify, "verify") or "",
        )
        stored = stored_reference(Path(scratch))
        first = run(order) if stored is None else ConversionOutcome(reference=stored)
        if first.refusal:
            raise RequestError(first.refusal)
        reference = first.reference
        loaded = first.model if reference is None else reference.model
        document = Conversion(
            **identity,
            source=request.model if loaded is None else ref.argument,
            model=replace(loaded, name=request.name) if loaded and request.name else loaded,
            inputs=inputs if reference is None else _with_file(reference.inputs, request),
            first=request.first,
            seed=request.seed,
            tolerance=order.tolerance,
            verify=name_of(order.verify),
            software=machine.software(_FRAMEWORKS),
        )
        if reference is None:
            return replace(document, converted=_all_failed(request, first))
        _check_outputs(order.tolerance, reference)
        folder = Path(request.output or f"{_folder_name(request, reference)}-converted")
        recipes = request.recipes(reference.kind)
        if not recipes:
            raise RequestError(
                f"Nothing here converts a model of {reference.kind}; see `modeldyno plugins converters`."
            )
        made: list[Converted] = []
        for recipe in recipes:
            own = replace(order, recipe=recipe, folder=str(folder / recipe), opset=request.opset)
            made.append(_one(recipe, own, reference, run, document))
            if request.first and made[-1].usable:
                break
    return replace(document, converted=tuple(made))


def _check_outputs(tolerance: Tolerance | None, reference: Reference) -> None:
    """Refuse a tolerance of an output that the source does not have.

    Raises:
        UnknownName: there is one.
    """
    names = [spec.name for spec in reference.outputs]
    for output in () if tolerance is None else tolerance.outputs:
        if output not in names:
            raise UnknownName.among("output", output, names)


def _shares(tolerance: Tolerance) -> float | dict[str, float]:
    """Return a tolerance as it is given in Python."""
    others = {"": tolerance.relative} if tolerance.relative else {}
    return tolerance.outputs | others if tolerance.outputs else tolerance.relative


def _reference_folder(kept: Path | None) -> AbstractContextManager[str]:
    """Return the folder of what the source returns: that of the caller, or a temporary one."""
    if kept is None:
        return own_folder("convert")
    kept.mkdir(parents=True, exist_ok=True)
    return nullcontext(str(kept))


@contextmanager
def _runner(
    request: ConversionRequest, watch: Callable[[str, str], None], *, in_process: bool
) -> Iterator[Callable[[ConversionOrder], ConversionOutcome]]:
    """Yield a function that carries out an order, here or in a process of its own."""

    def stage_watcher(order: ConversionOrder) -> Callable[[str], None]:
        return lambda stage: watch(order.recipe, stage)

    if in_process:
        yield lambda order: run_order(order, stage_watcher(order))
        return
    with order_processes(request.max_time) as run:
        yield lambda order: run(order, stage_watcher(order))


def _one(
    recipe: str,
    order: ConversionOrder,
    reference: Reference,
    run: Callable[[ConversionOrder], ConversionOutcome],
    document: Conversion,
) -> Converted:
    """Carry out one recipe."""
    options = {} if order.opset is None else {"opset": order.opset}
    blank = Converted(recipe=recipe, options=dict(options))
    converter = plugins.converter(recipe)
    if reference.kind not in converter.sources:
        kinds = ", ".join(converter.sources)
        message = f"nothing converts a model of {reference.kind} to {recipe}, only one of {kinds}"
        others = ", ".join(possible_recipes(reference.kind))
        advice = f"such a model becomes: {others}" if others else ""
        return replace(blank, failure=failure(Kind.UNSUPPORTED_SOURCE, message, advice=advice))
    if lacking := plugins.missing(converter.sources[reference.kind]):
        message = f"converting {reference.kind} to {recipe} needs {', '.join(lacking)}"
        advice = f"run {plugins.install_command(lacking)}"
        return replace(blank, failure=failure(Kind.MISSING_EXTRA, message, advice=advice))
    folder = Path(order.folder)
    script = ""
    if not order.model.live:
        script = str(_script(order, converter.file, document))
    answer = run(order)
    if answer.converted is not None:
        return replace(answer.converted, reproduce=script)
    left = folder / converter.file
    if left.exists() and answer.failure is not None:  # written, and then it crashed or hung
        left.rename(left.with_name(left.name + UNCHECKED))
        blank = replace(blank, path=str(left) + UNCHECKED)
    return replace(
        blank,
        failure=answer.failure or failure(Kind.ERROR, answer.refusal or "it gave no answer"),
        reproduce=script,
    )


def _script(order: ConversionOrder, file: str, document: Conversion) -> Path:
    return write_script(
        Path(order.folder),
        file,
        order.model,
        recipe=order.recipe,
        opset=order.opset,
        inputs=order.inputs,
        seed=order.seed,
        trust=order.trust,
        evaluate=order.evaluate,
        labelled=order.labelled,
        tolerance=None if order.tolerance is None else _shares(order.tolerance),
        verify=order.verify,
        software=document.software,
    )


def _all_failed(request: ConversionRequest, answer: ConversionOutcome) -> tuple[Converted, ...]:
    """Return the failure of the source for every recipe that was asked for."""
    return tuple(Converted(recipe=recipe, failure=answer.failure) for recipe in request.to)


def _with_file(inputs: tuple[InputSpec, ...], request: ConversionRequest) -> tuple[InputSpec, ...]:
    """Name the file of real samples in the inputs."""
    files = {spec.name: spec.source for spec in request.requested_inputs() if spec.source}
    return tuple(replace(spec, source=files.get(spec.name, files.get(""))) for spec in inputs)


def _folder_name(request: ConversionRequest, reference: Reference) -> str:
    name = request.name or reference.model.name
    return re.sub(r"[^\w.-]+", "_", name).strip("_.") or "model"
