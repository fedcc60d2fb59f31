"""``modeldyno.convert``: a model in other forms, each with the verdict whether it is still the model."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from modeldyno.base.stats.units import read_time
from modeldyno.conversion.request import MAX_TIME, ConversionRequest
from modeldyno.conversion.run import convert as run_conversion
from modeldyno.profiling.api.arrays import with_batches
from modeldyno.profiling.api.error_wording import reword_errors
from modeldyno.profiling.api.live_functions import check_functions, offered_function
from modeldyno.profiling.api.options import OutputKeywords, OutputOptions, take
from modeldyno.profiling.api.profile import as_tuple, offered, parse_names, store_conclusion_if

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from modeldyno.base.job.input_spec import InputSpec
    from modeldyno.conversion.agreement.conversion import Conversion


@dataclass(frozen=True, slots=True, kw_only=True)
class FormOptions:
    """Which forms are made."""

    first: bool = False
    int8: bool = False
    fp16: bool = False
    opset: int | None = None


class ConvertKeywords(OutputKeywords, total=False):
    """Keywords of `convert`: fields of `FormOptions` and `OutputOptions`."""

    first: bool
    int8: bool
    fp16: bool
    opset: int | None


@reword_errors
def convert(
    model: Any,
    example: Any = None,
    *,
    to: str | Sequence[str] = "onnx",
    output: str | Path | None = None,
    inputs: str | Sequence[str | InputSpec] = (),
    data: str | Path | None = None,
    evaluate: str | Sequence[str] = (),
    max_time: float | str = MAX_TIME,
    seed: int = 0,
    name: str | None = None,
    trust: bool = False,
    inline: bool = False,
    store: bool = True,
    watch: Callable[[str, str], None] | None = None,
    **options: Unpack[ConvertKeywords],
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
    forms = take(FormOptions, options)
    judged = take(OutputOptions, options)
    fields: dict[str, Any] = {
        "to": parse_names(to, "to"),
        "first": forms.first,
        "int8": forms.int8,
        "fp16": forms.fp16,
        "output": output,
        "opset": forms.opset,
        "inputs": as_tuple(inputs, "inputs"),
        "data": data,
        "evaluate": parse_names(evaluate, "evaluate"),
        "max_time": read_time(max_time, "max_time"),
        "tolerance": judged.tolerance,
        "seed": seed,
        "name": name,
        "trust": trust,
    }
    report_stage = watch or (lambda _form, _stage: None)
    live = not isinstance(model, str | Path)
    check_functions(None, None, None, live=live or inline, verify=judged.verify)
    with ExitStack() as stack:
        ref = str(model)
        if live:
            arrays, _ = with_batches(model, example, {}, mode="inference")
            ref, _ = stack.enter_context(offered(model, name, arrays))
        judge = stack.enter_context(offered_function(judged.verify, "verify"))
        request = ConversionRequest(model=ref, verify=judge, **fields)
        conversion = run_conversion(request, in_process=live or inline, watch=report_stage)
    store_conclusion_if(conversion, condition=store)
    return conversion
