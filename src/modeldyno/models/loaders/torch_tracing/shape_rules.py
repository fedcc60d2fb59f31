"""Rules for torch operators whose results depend on values, and for those without shape rules in torch.

Two tables: `VALUE_RULES` answers a call in place of the dispatch mode, or returns NotImplemented;
`SHAPE_RULES` returns outputs on torch's meta device. Assumptions are recorded with the mode's `assume`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from modeldyno.base.errors import RequestError
from modeldyno.models.loaders.torch_tracing.meta_tensor import (
    MAX_KNOWN_ELEMENTS,
    META,
    OpTraits,
    is_small,
    traits_of,
)

if TYPE_CHECKING:
    from modeldyno.models.loaders.torch_tracing.meta_tensor import DispatchMode, MetaTensor
    from modeldyno.models.loaders.torch_tracing.op_call import OpCall

# -- operators whose results depend on values ---------------------------------------------------------


def _item(
    dispatch_mode: DispatchMode, traits: OpTraits, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    del traits, kwargs
    return _number(dispatch_mode, args[0])


def _equal(
    dispatch_mode: DispatchMode, traits: OpTraits, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    del traits, kwargs
    first, second = (dispatch_mode.as_meta_tensor(a).valid_values() for a in args[:2])
    if first is not None and second is not None:
        return torch.equal(first, second)
    return dispatch_mode.assume_flag(
        "two tensors that are not computed are compared; taken as different",
        "two tensors that make the model fail when different are not computed; taken as equal",
    )


def _attention_kernel(
    dispatch_mode: DispatchMode, traits: OpTraits, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Ask torch which attention kernel it takes on the CPU, with expanded tensors of these shapes."""
    del dispatch_mode, traits

    def thin(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        strides = (0,) * (value.dim() - 1) + (1,)
        strided = torch.empty(value.shape[-1] if value.dim() else 1, dtype=value.dtype)
        return strided.as_strided(value.shape, strides).requires_grad_(value.requires_grad)

    return torch._fused_sdp_choice(*map(thin, args), **{k: thin(v) for k, v in kwargs.items()})


def _nonzero(
    dispatch_mode: DispatchMode, traits: OpTraits, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Return the indices of non-zero elements; where values are unknown, of all elements."""
    del traits
    meta_tensor = dispatch_mode.as_meta_tensor(args[0])
    if meta_tensor.valid_values() is not None:
        return NotImplemented
    dispatch_mode.assume("which elements are chosen is not computed; taken as all of them")
    ones = torch.ones(meta_tensor.shape, dtype=torch.bool)
    indices = torch.nonzero(ones)
    del kwargs
    return dispatch_mode.make_tensor(
        tuple(indices.shape), torch.int64, indices if is_small(indices) else None
    )


def _masked_select(
    dispatch_mode: DispatchMode, traits: OpTraits, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    del kwargs
    selected = _mask_indices(dispatch_mode, args[1])
    source = dispatch_mode.as_meta_tensor(args[0])
    out = dispatch_mode.make_tensor((selected[0].shape[0],), source.dtype)
    dispatch_mode.report(traits, args, {}, (out,))
    return out


def _integer_conversion(
    dispatch_mode: DispatchMode, traits: OpTraits, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Fix integers converted from unknown floats to 1, so that everything derived from them agrees."""
    kind, source = kwargs.get("dtype"), args[0]
    if kind not in {torch.int64, torch.int32} or not source.dtype.is_floating_point:
        return NotImplemented
    meta_tensor = dispatch_mode.as_meta_tensor(source)
    if meta_tensor.valid_values() is not None or not is_small(meta_tensor.backing):
        return NotImplemented
    meta = meta_tensor.backing.to(kind)
    guess = "integers derived from values that are not computed are taken as 1"
    out = dispatch_mode.wrap_meta(meta, torch.ones(meta.shape, dtype=kind), guess)
    dispatch_mode.report(traits, args, kwargs, (out,))
    return out


def _repeat_indices(
    dispatch_mode: DispatchMode, traits: OpTraits, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Return the source indices of repeated elements; where the counts are unknown, each once."""
    repeats = dispatch_mode.as_meta_tensor(args[0])
    if repeats.valid_values() is not None:
        return NotImplemented
    size = kwargs.get("output_size") or repeats.numel()
    dispatch_mode.assume("how often elements are repeated is not computed; taken as once each")
    places = (
        torch.arange(size).clamp_(max=max(0, repeats.numel() - 1)) if size <= MAX_KNOWN_ELEMENTS else None
    )
    out = dispatch_mode.make_tensor((size,), repeats.dtype, places)
    dispatch_mode.report(traits, args, kwargs, (out,))
    return out


def _mask_indices(dispatch_mode: DispatchMode, mask: Tensor) -> tuple[Tensor, ...]:
    meta_tensor = dispatch_mode.as_meta_tensor(mask)
    values = meta_tensor.valid_values()
    if values is None:
        dispatch_mode.assume("which elements are chosen is not computed; taken as all of them")
        values = torch.ones(meta_tensor.shape, dtype=torch.bool)
    return torch.nonzero(values, as_tuple=True)


def _index(
    dispatch_mode: DispatchMode, traits: OpTraits, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Convert masks among the indices to integer indices."""
    indices = args[1]
    if not any(isinstance(i, Tensor) and i.dtype in {torch.bool, torch.uint8} for i in indices):
        return NotImplemented
    int_indices: list[Any] = []
    for index in indices:
        if isinstance(index, Tensor) and index.dtype in {torch.bool, torch.uint8}:
            positions = _mask_indices(dispatch_mode, index)
            int_indices += [
                dispatch_mode.make_tensor(tuple(i.shape), i.dtype, i if is_small(i) else None)
                for i in positions
            ]
        else:
            int_indices.append(index)
    func = getattr(torch.ops.aten, traits.name.removeprefix("aten."))
    overload = func.Tensor if hasattr(func, "Tensor") else func.default
    return dispatch_mode.run(overload, (args[0], int_indices, *args[2:]), kwargs)


def _even_selection(
    dispatch_mode: DispatchMode, traits: OpTraits, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Spread a selection by unknown scores evenly: every expert and every class is chosen equally often."""
    meta_tensor = dispatch_mode.as_meta_tensor(args[0])
    if meta_tensor.valid_values() is not None:
        return NotImplemented
    arguments = dict(zip(traits.arguments, args, strict=False)) | kwargs
    axis = arguments.get("dim", -1)
    if not isinstance(axis, int) or not meta_tensor.dim():
        return NotImplemented
    size = meta_tensor.shape[axis]
    out = dispatch_mode.on_meta(_overload(traits, arguments), args, kwargs)
    outs = out if isinstance(out, list | tuple) else (out,)
    guess = "a selection by scores that are not computed is spread evenly, as by a balanced router"
    wrapped: list[MetaTensor] = []
    for meta in outs:
        values = None
        if meta.dtype is torch.int64 and size and meta.numel() <= MAX_KNOWN_ELEMENTS:
            values = torch.arange(meta.numel()).remainder_(size).reshape(meta.shape)
            if axis % max(1, meta_tensor.dim()) != meta_tensor.dim() - 1 and meta.dim():
                dim = axis % meta.dim()
                transposed_shape = meta.transpose(dim, -1).shape
                values = (
                    torch.arange(meta.numel()).remainder_(size).reshape(transposed_shape).transpose(dim, -1)
                )
        wrapped.append(dispatch_mode.wrap_meta(meta, values, None if values is None else guess))
    dispatch_mode.report(traits, args, kwargs, tuple(wrapped))
    return (
        type(out)(wrapped) if isinstance(out, list) else (tuple(wrapped) if len(wrapped) > 1 else wrapped[0])
    )


def _overload(traits: OpTraits, arguments: Mapping[str, Any]) -> Any:
    packet = getattr(torch.ops.aten, traits.name.removeprefix("aten."))
    for name in packet.overloads():
        overload = getattr(packet, name)
        candidate = traits_of(overload)
        fits = candidate.arguments == traits.arguments or set(arguments) <= set(candidate.arguments)
        if fits and not candidate.written and "out" not in candidate.arguments:
            return overload
    return packet


def _packed_rows(
    dispatch_mode: DispatchMode, traits: OpTraits, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Return the packed steps of padded sequences, one after the other, and the batch size of each step.

    The batch sizes are a plain tensor: torch's recurrent layers read them in memory.
    """
    arguments = dict(zip(traits.arguments, args, strict=False)) | kwargs
    source, lengths = (
        dispatch_mode.as_meta_tensor(arguments["input"]),
        dispatch_mode.as_meta_tensor(arguments["lengths"]).valid_values(),
    )
    step_axis, batch_axis = (1, 0) if arguments["batch_first"] else (0, 1)
    if lengths is None:
        dispatch_mode.assume("sequence lengths are not computed; all are taken as full")
        lengths = torch.full((source.shape[batch_axis],), source.shape[step_axis])
    longest = source.shape[step_axis]
    if wrong := [length for length in lengths.tolist() if not 0 < length <= longest]:
        raise ValueError(
            f"a sequence of {longest} steps is packed with a length of {wrong[0]}; lengths are "
            f"1 to {longest}, such as `inputs=lengths={len(lengths)}:int64:1..{longest}`, or an example in "
            "the factory"
        )
    active_counts = [int((lengths > step).sum()) for step in range(int(lengths.max()))]
    rows = dispatch_mode.make_tensor((sum(active_counts), *source.shape[2:]), source.dtype)
    dispatch_mode.report(traits, args, kwargs, (rows,))
    return rows, torch.tensor(active_counts)


def pad_packed_sequence(
    data: Tensor, batch_sizes: Tensor, batch_first: bool, padding_value: float, total_length: int
) -> tuple[Tensor, Tensor]:
    """Unpack packed sequences, with the operators of torch's own function.

    Torch's function writes the lengths into memory, which a meta tensor does not have, so the mode replaces
    it.

    Args:
        data: the steps of all sequences, one after the other.
        batch_sizes: number of sequences at each step.
        batch_first: whether the batch is the first axis of the result.
        padding_value: value after the end of a sequence.
        total_length: steps of the result; 0 or less for those of the longest sequence.
    """
    active_counts = [int(size) for size in batch_sizes.tolist()]
    steps = max(len(active_counts), total_length)
    if 0 < total_length < len(active_counts):
        raise ValueError(
            f"total_length={total_length} is less than the longest sequence, which has "
            f"{len(active_counts)} steps"
        )
    output = data.new_full((steps, active_counts[0], *data.shape[1:]), padding_value)
    begin = offset = 0
    for end, size in enumerate([*active_counts[1:], 0], start=1):
        before = active_counts[begin]
        if size != before:
            rows = data.narrow(0, offset, before * (end - begin)).view(end - begin, before, *data.shape[1:])
            output.narrow(0, begin, end - begin).narrow(1, 0, before).copy_(rows)
            offset, begin = offset + before * (end - begin), end
    lengths = torch.tensor([sum(size > index for size in active_counts) for index in range(active_counts[0])])
    return (output.transpose(0, 1) if batch_first else output), lengths


def _keeps_padding(
    dispatch_mode: DispatchMode, traits: OpTraits, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    """Keep `nn.TransformerEncoder` from packing sequences into a nested tensor, whose shapes are values."""
    del traits, args, kwargs
    dispatch_mode.assume("sequences are not packed into nested tensors; padding counts in full", flag=True)
    return False


ValueRule = Callable[["DispatchMode", OpTraits, tuple[Any, ...], dict[str, Any]], Any]
VALUE_RULES: dict[str, ValueRule] = {
    "aten._local_scalar_dense": _item,
    "aten.equal": _equal,
    "aten._fused_sdp_choice": _attention_kernel,
    "aten._pack_padded_sequence": _packed_rows,
    "aten._nested_tensor_from_mask_left_aligned": _keeps_padding,
    "aten.nonzero": _nonzero,
    "aten.masked_select": _masked_select,
    "aten.repeat_interleave": _repeat_indices,
    "aten._to_copy": _integer_conversion,
    "aten.index": _index,
    "aten.index_put": _index,
    "aten.index_put_": _index,
    "aten.topk": _even_selection,
    "aten.sort": _even_selection,
    "aten.argmax": _even_selection,
    "aten.argmin": _even_selection,
    "aten.argsort": _even_selection,
}


# -- operators that take functions -------------------------------------------------------------------


def _flex_attention(dispatch_mode: DispatchMode, args: tuple[Any, ...]) -> Any:
    """Compute flex attention as dense attention: score and mask functions cost nothing and mask nothing."""
    query, _, value = (dispatch_mode.as_meta_tensor(arg).backing for arg in args[:3])
    row_shape = tuple(query.shape[:-1])
    outputs = (
        dispatch_mode.make_tensor((*row_shape, value.shape[-1]), query.dtype),
        dispatch_mode.make_tensor(row_shape, torch.float32),
        dispatch_mode.make_tensor(row_shape, torch.float32),
    )
    dispatch_mode.assume(
        "score and mask functions of flex attention are taken to cost nothing and to mask nothing"
    )
    dispatch_mode.report(_FLEX_ATTENTION, args[:3], {}, outputs)
    return outputs


_FLEX_ATTENTION = OpTraits(
    name="higher_order.flex_attention",
    arguments=("query", "key", "value"),
    written=(),
    written_names=(),
    reshapes_in_place=False,
    random=False,
)


def _branch(dispatch_mode: DispatchMode, args: tuple[Any, ...]) -> Any:
    """Take the branch of a condition that its flag selects, or the one of an assumed flag."""
    flag, then, otherwise, operands = args
    chosen = flag if isinstance(flag, bool) else _number(dispatch_mode, flag)
    return dispatch_mode.call_within(then if chosen else otherwise, operands)


def _number(dispatch_mode: DispatchMode, tensor: Tensor) -> Any:
    meta_tensor = dispatch_mode.as_meta_tensor(tensor)
    values = meta_tensor.valid_values()
    return (dispatch_mode.assumed_values(meta_tensor) if values is None else values).item()


def _while_loop(dispatch_mode: DispatchMode, args: tuple[Any, ...]) -> Any:
    """Repeat the body while its condition is known to hold; once, where that depends on values."""
    condition, body, carried, others = args
    for _ in range(_MOST_ROUNDS):
        flag = dispatch_mode.call_within(condition, (*carried, *others))
        values = dispatch_mode.as_meta_tensor(flag).valid_values() if isinstance(flag, Tensor) else flag
        if values is None:
            dispatch_mode.assume("the rounds of a loop depend on values; it is counted once")
            return tuple(dispatch_mode.call_within(body, (*carried, *others)))
        if not values:
            return tuple(carried)
        carried = tuple(dispatch_mode.call_within(body, (*carried, *others)))
    raise RequestError(
        f"A loop of the model takes more than {_MOST_ROUNDS:,} rounds, which are not analysed."
    )


_MOST_ROUNDS = 10_000


def _scan(dispatch_mode: DispatchMode, args: tuple[Any, ...]) -> Any:
    """Apply the function to each slice along the first axis, and stack what it gives beside its state."""
    function, state, sources, others = args
    rows: list[list[Tensor]] = []

    def steps() -> list[Any]:
        carried = list(state)
        for place in range(sources[0].shape[0]):
            result = function(*carried, *(source.select(0, place) for source in sources), *others)
            carried = list(result[: len(state)])
            rows.append(list(result[len(state) :]))
        return [*carried, *(torch.stack(column) for column in zip(*rows, strict=True))]

    return tuple(dispatch_mode.call_within(steps, ()))


HIGHER_ORDER_RULES: dict[str, Callable[[DispatchMode, tuple[Any, ...]], Any]] = {
    "cond": _branch,
    "flex_attention": _flex_attention,
    "scan": _scan,
    "while_loop": _while_loop,
}
"""Rules for higher-order operators, which take functions; any other is rejected."""


# -- shapes that torch does not infer -----------------------------------------------------------------


def _like_first_input(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    del func, kwargs
    return torch.empty_like(args[0])


def _attention_fast_path(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    arguments = dict(zip(traits_of(func).arguments, args, strict=False)) | kwargs
    query, key, heads = arguments["query"], arguments["key"], arguments["num_head"]
    batch, length, _ = query.shape
    weights = torch.empty(0, device=META)
    if arguments.get("need_weights", True):
        average = arguments.get("average_attn_weights", True)
        shape = (batch, length, key.shape[1]) if average else (batch, heads, length, key.shape[1])
        weights = query.new_empty(shape)
    return torch.empty_like(query), weights


def _grouped_product(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the shape of a grouped product in any dtype; torch's own rule supports bfloat16 alone."""
    arguments = dict(zip(traits_of(func).arguments, args, strict=False)) | kwargs
    first, second, ends = arguments["self"], arguments["mat2"], arguments.get("offs")
    groups: tuple[int, ...] = ()
    if first.dim() == second.dim():
        groups = ((ends if ends is not None and first.dim() < 3 else first).shape[0],)
    return first.new_empty(
        (*groups, first.shape[-2], second.shape[-1]), dtype=arguments.get("out_dtype") or first.dtype
    )


def _recurrent_layer(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the outputs of a oneDNN recurrent layer, with the workspace it keeps for backward, to about 2 %.

    The workspace holds gates and states of all steps, several times; fitted by training single layers of many
    sizes.
    """
    arguments = dict(zip(traits_of(func).arguments, args, strict=False)) | kwargs
    output, hidden, cell, workspace = func(*args, **kwargs)
    if arguments.get("train", False):
        step = hidden.numel() * hidden.element_size()
        steps = output.numel() // max(1, hidden.numel())
        workspace = output.new_empty((int(15.3 * steps + 10) * step,), dtype=torch.uint8)
    return output, hidden, cell, workspace


def _packed_linear(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the shape of a linear layer with a packed quantised weight."""
    del kwargs
    source, packed = args[0], args[1]
    width = packed.unpack()[0].shape[0]
    dynamic = "dynamic" in traits_of(func).name
    return source.new_empty((*source.shape[:-1], width), dtype=torch.float32 if dynamic else source.dtype)


def _packed_convolution(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the shape of a convolution with packed quantised filters, strides and padding."""
    del func, kwargs
    source, packed = args[0], args[1]
    filters, sizes = packed.unpack()[0].shape, source.shape[2:]
    steps = zip(
        sizes,
        *(
            list(values)[-len(sizes) :]  # one dimension is packed as the last of two
            for values in (filters[2:], packed.stride(), packed.padding(), packed.dilation())
        ),
        strict=True,
    )
    shape = [(size + 2 * pad - gap * (taps - 1) - 1) // step + 1 for size, taps, step, pad, gap in steps]
    return source.new_empty((source.shape[0], filters[0], *shape))


def _packed_transposed_convolution(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the shape of a transposed convolution with packed filters, whose first axis is the input's."""
    del func, kwargs
    source, packed = args[0], args[1]
    filters, sizes = packed.unpack()[0].shape, source.shape[2:]
    parts = (filters[2:], packed.stride(), packed.padding(), packed.dilation(), packed.output_padding())
    steps = zip(sizes, *(list(values)[-len(sizes) :] for values in parts), strict=True)
    shape = [
        (size - 1) * step - 2 * pad + gap * (taps - 1) + more + 1
        for size, taps, step, pad, gap, more in steps
    ]
    return source.new_empty((source.shape[0], filters[1] * packed.groups(), *shape))


def _packed_recurrent_layers(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the outputs of all steps of an LSTM or a GRU with packed weights, and its last states."""
    arguments = dict(zip(traits_of(func).arguments, args, strict=False)) | kwargs
    source = arguments["input"] if "input" in arguments else arguments["data"]
    states = arguments["hx"]
    states = tuple(states) if isinstance(states, list | tuple) else (states,)
    width = states[0].shape[-1] * (1 + bool(arguments["bidirectional"]))
    return (source.new_empty((*source.shape[:-1], width)), *(torch.empty_like(state) for state in states))


def _packed_cell(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the new states of a cell with packed weights."""
    del func, kwargs
    states = args[1]
    if isinstance(states, list | tuple):
        return tuple(torch.empty_like(state) for state in states)
    return torch.empty_like(states)


def _quantized_elementwise(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the shape of an element-wise function of quantised tensors."""
    del func, kwargs
    tensors = [arg for arg in args if isinstance(arg, Tensor)]
    shape = torch.broadcast_shapes(*(tensor.shape for tensor in tensors))  # type: ignore[no-untyped-call]
    return tensors[0].new_empty(shape)


def _quantized_cat(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the shape of concatenated quantised tensors."""
    arguments = dict(zip(traits_of(func).arguments, args, strict=False)) | kwargs
    shape = list(arguments["qx"][0].shape)
    shape[arguments["dim"]] = sum(tensor.shape[arguments["dim"]] for tensor in arguments["qx"])
    return arguments["qx"][0].new_empty(shape)


def _dequantize(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the shape of a quantised tensor as floats."""
    del func, kwargs
    return torch.empty(args[0].shape, dtype=torch.float32, device=META)


def _stack(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the shape of a stack of tensors; torch's own rule is slow where a loop stacks its history."""
    arguments = dict(zip(traits_of(func).arguments, args, strict=False)) | kwargs
    tensors, axis = arguments["tensors"], arguments.get("dim", 0)
    layouts = {(t.shape, t.dtype, t.is_contiguous()) for t in tensors}
    shape, dtype, contiguous = layouts.pop() if len(layouts) == 1 else ((), None, False)
    if not contiguous or "out" in arguments or not -len(shape) - 1 <= axis <= len(shape):
        return func(*args, **kwargs)
    axis %= len(shape) + 1
    return torch.empty((*shape[:axis], len(tensors), *shape[axis:]), dtype=dtype, device=META)


def _elementwise(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the shape of a unary element-wise function; torch's own rule imports its compiler."""
    source = args[0]
    return source.new_empty(source.shape) if source.is_contiguous() and not kwargs else func(*args, **kwargs)


def _product(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the shape of a matrix product; torch's own rule imports its compiler, which is slow."""
    *_, first, second = (arg for arg in args if isinstance(arg, Tensor))
    fits = first.dim() == second.dim() == (3 if "bmm" in traits_of(func).name else 2)
    alike = len({arg.dtype for arg in args if isinstance(arg, Tensor)}) == 1
    if not fits or not alike or first.shape[:-2] != second.shape[:-2] or first.shape[-1] != second.shape[-2]:
        return func(*args, **kwargs)
    shape = (*first.shape[:-1], second.shape[-1])
    if kwargs.keys() - {"alpha", "beta"} or not _broadcasts(args[0].shape, shape, operands=len(args)):
        return func(*args, **kwargs)
    return first.new_empty(shape)


def _broadcasts(shape: tuple[int, ...], target: tuple[int, ...], *, operands: int) -> bool:
    """Whether the addend of a product broadcasts to it; a product of two has no addend."""
    pairs = zip(reversed(shape), reversed(target), strict=False)
    return operands == 2 or (len(shape) <= len(target) and all(dim in {1, size} for dim, size in pairs))


SHAPE_RULES: dict[str, Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]] = {
    "aten._transformer_encoder_layer_fwd": _like_first_input,
    "aten.relu": _elementwise,
    "aten.mm": _product,
    "aten.addmm": _product,
    "aten.bmm": _product,
    "aten.baddbmm": _product,
    "aten._native_multi_head_attention": _attention_fast_path,
    "aten._grouped_mm": _grouped_product,
    "aten.mkldnn_rnn_layer": _recurrent_layer,
    "aten.stack": _stack,
    **{
        f"quantized.linear{relu}_dynamic{kind}": _packed_linear
        for relu in ("", "_relu")
        for kind in ("", "_fp16")
    },
    "quantized.linear": _packed_linear,
    "quantized.linear_relu": _packed_linear,
    "aten.quantized_lstm": _packed_recurrent_layers,
    "aten.quantized_gru": _packed_recurrent_layers,
    **{
        f"quantized.quantized_{kind}_cell_dynamic": _packed_cell
        for kind in ("lstm", "gru", "rnn_tanh", "rnn_relu")
    },
    "aten.dequantize": _dequantize,
    "quantized.cat": _quantized_cat,
    **{f"quantized.{name}{end}": _quantized_elementwise for name in ("add", "mul") for end in ("", "_relu")},
    **{f"quantized.conv{dims}d{end}": _packed_convolution for dims in (1, 2, 3) for end in ("", "_relu")},
    **{f"quantized.conv_transpose{dims}d": _packed_transposed_convolution for dims in (1, 2, 3)},
}


def infer_shapes(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], op_call: OpCall) -> Any:
    """Infer the outputs: by torch, by a rule of ours, or from the values."""
    rule = SHAPE_RULES.get(traits_of(func).name)
    if rule is not None:
        return rule(func, args, kwargs)
    try:
        return func(*args, **kwargs)
    except (NotImplementedError, RuntimeError) as error:
        if op_call.real_output is not None:
            op_call.data_dependent = True
            if op_call.guess is not None:
                op_call.dispatch_mode.assume(op_call.guess)
            return _to_meta(op_call.real_output)
        try:
            out = func.decompose(*args, **kwargs)
        except (NotImplementedError, RuntimeError, AttributeError):
            out = NotImplemented
        if out is NotImplemented:
            if not _has_no_rule(error):
                raise
            return _run_once(func, args, kwargs, op_call)
        return out


def _has_no_rule(error: Exception) -> bool:
    """Whether an operator has no shape rule; otherwise the error is about wrong shapes."""
    phrases = ("meta", "no fake impl")  # from torch's own messages
    return isinstance(error, NotImplementedError) or any(word in str(error).lower() for word in phrases)


def _run_once(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], op_call: OpCall) -> Any:
    """Run an operator without a shape rule, on known values and on random numbers, for its shapes alone.

    Raises:
        RequestError: it cannot be run on them, or they are too large.
    """
    name = traits_of(func).name
    tensors = [value for value in _flat((*args, *kwargs.values())) if isinstance(value, Tensor)]
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    if size > _LARGEST_RUN:
        raise _missing_rule_error(name, f"its inputs have {size:,} bytes")
    try:
        with torch.random.fork_rng(devices=[]):
            out = func(
                *(_stand_in(value, op_call) for value in args),
                **{key: _stand_in(value, op_call) for key, value in kwargs.items()},
            )
    except Exception as error:
        raise _missing_rule_error(name, " ".join(str(error).split())[:_LONGEST_REASON]) from error
    op_call.data_dependent = True
    op_call.dispatch_mode.assume(f"{name} was run once on random numbers, for the sizes of its results")
    return _to_meta(out)


def _missing_rule_error(name: str, reason: str) -> RequestError:
    return RequestError(
        f"The operator {name} cannot be analysed: torch knows no rule for its shapes, and it cannot be run "
        f"for them ({reason}); register a rule with torch.library.register_fake."
    )


_LARGEST_RUN = 2**30
"""Bytes of the inputs of an operator that is run for its shapes."""
_LONGEST_REASON = 120
"""Characters of an error that are quoted."""


def _flat(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [part for item in value for part in _flat(item)]
    return [value]


def _stand_in(value: Any, op_call: OpCall) -> Any:
    """Return arguments with real tensors on the CPU instead of those of the meta device."""
    if isinstance(value, list | tuple):
        return type(value)(_stand_in(item, op_call) for item in value)
    if isinstance(value, torch.device):
        return torch.device("cpu")
    if not isinstance(value, Tensor) or not value.is_meta:
        return value
    meta_tensor = op_call.meta_tensors.get(id(value))
    known = None if meta_tensor is None else meta_tensor.valid_values()
    if known is not None:
        return known.clone()
    if value.dtype.is_floating_point or value.dtype.is_complex:
        return torch.rand(value.shape, dtype=torch.float32).to(value.dtype)
    return torch.ones(value.shape, dtype=value.dtype)


def _to_meta(value: Any) -> Any:
    if isinstance(value, Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=META)
    if isinstance(value, list | tuple):
        return type(value)(map(_to_meta, value))
    return value
