"""``modeldyno.convert``: a model in other forms, each with the verdict whether it is still the model."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeldyno.base.stats.units import read_time
from modeldyno.conversion.request import MAX_TIME, ConversionRequest
from modeldyno.conversion.run import convert as run_conversion
from modeldyno.profiling.api.arrays import with_batches
from modeldyno.profiling.api.error_wording import reword_errors
from modeldyno.profiling.api.live_functions import check_functions, offered_function
from modeldyno.profiling.api.profile import as_tuple, offered, parse_names, store_conclusion_if

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from modeldyno.base.job.input_spec import InputSpec
    from modeldyno.conversion.agreement.conversion import Conversion


@reword_errors
def convert(  # noqa: PLR0913 - one function per command, one parameter per option
    model: Any,
    example: Any = None,
    *,
    to: str | Sequence[str] = "onnx",
    first: bool = False,
    int8: bool = False,
    fp16: bool = False,
    output: str | Path | None = None,
    opset: int | None = None,
    inputs: str | Sequence[str | InputSpec] = (),
    data: str | Path | None = None,
    evaluate: str | Sequence[str] = (),
    max_time: float | str = MAX_TIME,
    tolerance: float | str | Mapping[str, float | str] | None = None,
    verify: str | Callable[..., Any] | None = None,
    seed: int = 0,
    name: str | None = None,
    trust: bool = False,
    inline: bool = False,
    store: bool = True,
    watch: Callable[[str, str], None] | None = None,
) -> Conversion:
    """Convert a model into other forms and compare each with it, as ``modeldyno convert`` does.

    Args:
        model: a reference (``"torch:file.py:factory"``, ``"m.onnx"``), or a live object: a
            ``torch.nn.Module``, a model of Keras, or an estimator; it is converted inside this process.
        example: inputs of a live object: an array, a tuple of them, a dict by name, or a
            ``torch.utils.data.DataLoader``.
        to: forms, such as ``"onnx,torchscript"``, or ``"all"`` that the model can become here.
        first: stop at the first form, in the order of `to`, that is still the model.
        int8: also make the form with int8 weights of each form that has one.
        fp16: also make the form in half precision of each form that has one.
        output: the folder; each form has a folder of its own in it. If None, it is named for the model.
        opset: opset of ONNX; the exporter's own if None.
        inputs: shapes or files, as ``--input`` takes them.
        data: real samples (.npz, .npy, .jsonl), instead of random ones; for `evaluate` with their labels,
            ``"test.npz"`` or ``"test.npz:labels"``.
        evaluate: metrics of the labelled samples, such as ``"accuracy"``, in which no form of lower
            precision may be inferior.
        max_time: time that each form may take, in seconds or as text such as ``"10m"``.
        tolerance: accept outputs that are off by this share of their largest value, such as 1e-3, where the
            rule asks for less, or by output: ``{"boxes": 1e-2}``; the document records it with the user.
        verify: function that judges instead of a bound on errors: ``"file.py:name"``, or of a live object a
            function as well. It gets the outputs of a call and those of the source, arrays or dicts by name
            of several, and returns whether they will do, or raises an AssertionError. Shapes, dtypes and the
            places of NaN must be equal all the same.
        seed: seed of random weights and samples.
        name: name of the model in the document and of the folder.
        trust: allow files that run code when loaded.
        inline: convert inside this process, without a time limit, for a debugger.
        store: keep the Conversion in the store; if it cannot be written, warn.
        watch: called with the form (empty for the source) and what is done.

    Returns:
        The Conversion: ``conversion["onnx"].path``, ``.agreement.sentence``, ``.failure``;
        `Conversion.usable` tells whether every form is still the model.

    Raises:
        RequestError: the request is wrong; nothing was converted. A form that fails does not raise.
        MissingExtra: the source needs a package that is not installed.
    """
    fields: dict[str, Any] = {
        "to": parse_names(to, "to"),
        "first": first,
        "int8": int8,
        "fp16": fp16,
        "output": output,
        "opset": opset,
        "inputs": as_tuple(inputs, "inputs"),
        "data": data,
        "evaluate": parse_names(evaluate, "evaluate"),
        "max_time": read_time(max_time, "max_time"),
        "tolerance": tolerance,
        "seed": seed,
        "name": name,
        "trust": trust,
    }
    report_stage = watch or (lambda _form, _stage: None)
    live = not isinstance(model, str | Path)
    check_functions(None, None, None, live=live or inline, verify=verify)
    with ExitStack() as stack:
        ref = str(model)
        if live:
            arrays, _ = with_batches(model, example, {}, mode="inference")
            ref, _ = stack.enter_context(offered(model, name, arrays))
        judge = stack.enter_context(offered_function(verify, "verify"))
        request = ConversionRequest(model=ref, verify=judge, **fields)
        conversion = run_conversion(request, in_process=live or inline, watch=report_stage)
    store_conclusion_if(conversion, condition=store)
    return conversion
