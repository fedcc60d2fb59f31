"""Rules for torch's operators that shapes do not decide, and for those whose shapes torch does not know.

Two tables: `SPECIAL` answers a call in place of the stage, or gives NotImplemented; `SHAPES` gives outputs on
torch's meta device. Whatever is taken for granted is told to the stage by `assume`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from modeldyno.adapters.loaders.torch_tracing.op_traits import META, MOST_KNOWN, Trait, is_small, trait

if TYPE_CHECKING:
    from modeldyno.adapters.loaders.torch_tracing.dispatch import Stage
    from modeldyno.adapters.loaders.torch_tracing.meta_tensor import Shadow
    from modeldyno.adapters.loaders.torch_tracing.op_call import Seen

# -- operators whose course depends on values --------------------------------------------------------


def _item(stage: Stage, found: Trait, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    del found, kwargs
    shadow = stage.as_shadow(args[0])
    values = shadow.known()
    return (stage.assumed(shadow) if values is None else values).item()


def _equal(stage: Stage, found: Trait, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    del found, kwargs
    first, second = (stage.as_shadow(a).known() for a in args[:2])
    if first is not None and second is not None:
        return torch.equal(first, second)
    return stage.flag(
        "two tensors that are not computed are compared; taken as different",
        "two tensors that the model refuses as different are not computed; taken as equal",
    )


def _choice(stage: Stage, found: Trait, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Ask torch which attention it takes on the CPU, with tensors of these shapes that take no memory."""
    del stage, found

    def thin(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        strides = (0,) * (value.dim() - 1) + (1,)
        made = torch.empty(value.shape[-1] if value.dim() else 1, dtype=value.dtype)
        return made.as_strided(value.shape, strides).requires_grad_(value.requires_grad)

    return torch._fused_sdp_choice(*map(thin, args), **{k: thin(v) for k, v in kwargs.items()})  # noqa: SLF001


def _count_of_true(stage: Stage, found: Trait, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Find what is non-zero; where it is not known, all is."""
    del found
    shadow = stage.as_shadow(args[0])
    if shadow.known() is not None:
        return NotImplemented
    stage.assume("which elements are chosen is not computed; taken as all of them")
    ones = torch.ones(shadow.shape, dtype=torch.bool)
    indices = torch.nonzero(ones)
    del kwargs
    return stage.shadow(tuple(indices.shape), torch.int64, indices if is_small(indices) else None)


def _masked_select(stage: Stage, found: Trait, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    del kwargs
    chosen = _index_of(stage, args[1])
    source = stage.as_shadow(args[0])
    out = stage.shadow((chosen[0].shape[0],), source.dtype)
    stage.tell(found, args, {}, (out,))
    return out


def _whole(stage: Stage, found: Trait, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Settle whole numbers where they are made of unknown fractions: all that follows from them agrees."""
    kind, source = kwargs.get("dtype"), args[0]
    if kind not in {torch.int64, torch.int32} or not source.dtype.is_floating_point:
        return NotImplemented
    shadow = stage.as_shadow(source)
    if shadow.known() is not None or not is_small(shadow.shape_of):
        return NotImplemented
    meta = shadow.shape_of.to(kind)
    guess = "whole numbers made of what is not computed are taken as 1"
    out = stage.cast(meta, torch.ones(meta.shape, dtype=kind), guess)
    stage.tell(found, args, kwargs, (out,))
    return out


def _repeated(stage: Stage, found: Trait, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Give the places that repeated ones come from; where it is not known how often, it is once."""
    repeats = stage.as_shadow(args[0])
    if repeats.known() is not None:
        return NotImplemented
    size = kwargs.get("output_size") or repeats.numel()
    stage.assume("how often elements are repeated is not computed; taken as once each")
    places = torch.arange(size).clamp_(max=max(0, repeats.numel() - 1)) if size <= MOST_KNOWN else None
    out = stage.shadow((size,), repeats.dtype, places)
    stage.tell(found, args, kwargs, (out,))
    return out


def _index_of(stage: Stage, mask: Tensor) -> tuple[Tensor, ...]:
    shadow = stage.as_shadow(mask)
    values = shadow.known()
    if values is None:
        stage.assume("which elements are chosen is not computed; taken as all of them")
        values = torch.ones(shadow.shape, dtype=torch.bool)
    return torch.nonzero(values, as_tuple=True)


def _index(stage: Stage, found: Trait, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Turn masks among the indices into the positions that they choose."""
    indices = args[1]
    if not any(isinstance(i, Tensor) and i.dtype in {torch.bool, torch.uint8} for i in indices):
        return NotImplemented
    whole: list[Any] = []
    for index in indices:
        if isinstance(index, Tensor) and index.dtype in {torch.bool, torch.uint8}:
            chosen = _index_of(stage, index)
            whole += [stage.shadow(tuple(i.shape), i.dtype, i if is_small(i) else None) for i in chosen]
        else:
            whole.append(index)
    func = getattr(torch.ops.aten, found.name.removeprefix("aten."))
    overload = func.Tensor if hasattr(func, "Tensor") else func.default
    return stage.run(overload, (args[0], whole, *args[2:]), kwargs)


def _chosen(stage: Stage, found: Trait, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Spread a choice by unknown scores evenly: every expert, every class gets its turn."""
    shadow = stage.as_shadow(args[0])
    if shadow.known() is not None:
        return NotImplemented
    given = dict(zip(found.arguments, args, strict=False)) | kwargs
    axis = given.get("dim", -1)
    if not isinstance(axis, int) or not shadow.dim():
        return NotImplemented
    size = shadow.shape[axis]
    out = stage.on_meta(_overload(found, given), args, kwargs)
    outs = out if isinstance(out, list | tuple) else (out,)
    guess = "a choice by scores that are not computed is spread evenly, as by a balanced router"
    wrapped: list[Shadow] = []
    for meta in outs:
        values = None
        if meta.dtype is torch.int64 and size and meta.numel() <= MOST_KNOWN:
            values = torch.arange(meta.numel()).remainder_(size).reshape(meta.shape)
            if axis % max(1, shadow.dim()) != shadow.dim() - 1 and meta.dim():
                place = axis % meta.dim()
                turned = meta.transpose(place, -1).shape
                values = torch.arange(meta.numel()).remainder_(size).reshape(turned).transpose(place, -1)
        wrapped.append(stage.cast(meta, values, None if values is None else guess))
    stage.tell(found, args, kwargs, tuple(wrapped))
    return (
        type(out)(wrapped) if isinstance(out, list) else (tuple(wrapped) if len(wrapped) > 1 else wrapped[0])
    )


def _overload(found: Trait, given: Mapping[str, Any]) -> Any:
    packet = getattr(torch.ops.aten, found.name.removeprefix("aten."))
    for name in packet.overloads():
        overload = getattr(packet, name)
        of_it = trait(overload)
        fits = of_it.arguments == found.arguments or set(given) <= set(of_it.arguments)
        if fits and not of_it.written and "out" not in of_it.arguments:
            return overload
    return packet


def _packed_rows(stage: Stage, found: Trait, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Give what is left of padded sequences: their steps one after the other, and how many go on at each.

    How many go on is a plain tensor: torch's recurrent layers read it in memory.
    """
    given = dict(zip(found.arguments, args, strict=False)) | kwargs
    source, lengths = stage.as_shadow(given["input"]), stage.as_shadow(given["lengths"]).known()
    steps, batch = (1, 0) if given["batch_first"] else (0, 1)
    if lengths is None:
        stage.assume("the lengths of sequences are not computed; taken as all full")
        lengths = torch.full((source.shape[batch],), source.shape[steps])
    longest = source.shape[steps]
    if wrong := [length for length in lengths.tolist() if not 0 < length <= longest]:
        raise ValueError(
            f"a sequence of {longest} steps is packed with a length of {wrong[0]}; lengths are "
            f"1 to {longest}, such as --input lengths={len(lengths)}:int64:1..{longest}, or an example in "
            "the factory"
        )
    going = [int((lengths > step).sum()) for step in range(int(lengths.max()))]
    rows = stage.shadow((sum(going), *source.shape[2:]), source.dtype)
    stage.tell(found, args, kwargs, (rows,))
    return rows, torch.tensor(going)


def padded(
    data: Tensor, batch_sizes: Tensor, batch_first: bool, padding_value: float, total_length: int
) -> tuple[Tensor, Tensor]:
    """Undo the packing of sequences, with the operators of torch's own function.

    That one writes the lengths into memory, which a shadow does not have: so it is replaced on a stage.

    Args:
        data: the steps of all sequences, one after the other.
        batch_sizes: how many sequences go on at each step.
        batch_first: whether the batch is the first axis of what is returned.
        padding_value: what stands after the end of a sequence.
        total_length: steps of what is returned; 0 or less for those of the longest sequence.
    """
    going = [int(size) for size in batch_sizes.tolist()]
    steps = max(len(going), total_length)
    if 0 < total_length < len(going):
        raise ValueError(
            f"total_length={total_length} is less than the longest sequence, which has {len(going)} steps"
        )
    output = data.new_full((steps, going[0], *data.shape[1:]), padding_value)
    begin = offset = 0
    for end, size in enumerate([*going[1:], 0], start=1):
        before = going[begin]
        if size != before:
            rows = data.narrow(0, offset, before * (end - begin)).view(end - begin, before, *data.shape[1:])
            output.narrow(0, begin, end - begin).narrow(1, 0, before).copy_(rows)
            offset, begin = offset + before * (end - begin), end
    lengths = torch.tensor([sum(size > place for size in going) for place in range(going[0])])
    return (output.transpose(0, 1) if batch_first else output), lengths


Special = Callable[["Stage", Trait, tuple[Any, ...], dict[str, Any]], Any]
SPECIAL: dict[str, Special] = {
    "aten._local_scalar_dense": _item,
    "aten.equal": _equal,
    "aten._fused_sdp_choice": _choice,
    "aten._pack_padded_sequence": _packed_rows,
    "aten.nonzero": _count_of_true,
    "aten.masked_select": _masked_select,
    "aten.repeat_interleave": _repeated,
    "aten._to_copy": _whole,
    "aten.index": _index,
    "aten.index_put": _index,
    "aten.index_put_": _index,
    "aten.topk": _chosen,
    "aten.sort": _chosen,
    "aten.argmax": _chosen,
    "aten.argmin": _chosen,
    "aten.argsort": _chosen,
}


# -- operators that take functions -------------------------------------------------------------------


def _flexible(stage: Stage, args: tuple[Any, ...]) -> Any:
    """Attend with scores and masks that are functions: dense, as if they cost nothing and hid nothing."""
    query, _, value = (stage.as_shadow(each).shape_of for each in args[:3])
    rows = tuple(query.shape[:-1])
    made = (
        stage.shadow((*rows, value.shape[-1]), query.dtype),
        stage.shadow(rows, torch.float32),
        stage.shadow(rows, torch.float32),
    )
    stage.assume("functions given to flex attention are taken to cost nothing and to hide nothing")
    stage.tell(_FLEXIBLE, args[:3], {}, made)
    return made


_FLEXIBLE = Trait(
    name="higher_order.flex_attention",
    arguments=("query", "key", "value"),
    written=(),
    written_names=(),
    reshapes_in_place=False,
    random=False,
)
HIGHER: dict[str, Callable[[Stage, tuple[Any, ...]], Any]] = {"flex_attention": _flexible}
"""What is known of them beside their functions; any other is refused."""


# -- shapes that torch does not know -----------------------------------------------------------------


def _like_first(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], seen: Seen) -> Any:
    del func, kwargs, seen
    return torch.empty_like(args[0])


def _attention_fast_path(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], seen: Seen) -> Any:
    del seen
    given = dict(zip(trait(func).arguments, args, strict=False)) | kwargs
    query, key, heads = given["query"], given["key"], given["num_head"]
    batch, length, _ = query.shape
    weights = torch.empty(0, device=META)
    if given.get("need_weights", True):
        average = given.get("average_attn_weights", True)
        shape = (batch, length, key.shape[1]) if average else (batch, heads, length, key.shape[1])
        weights = query.new_empty(shape)
    return torch.empty_like(query), weights


def _grouped(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], seen: Seen) -> Any:
    """Give the shape of a grouped product in any dtype; torch's own rule knows bfloat16 alone."""
    del seen
    given = dict(zip(trait(func).arguments, args, strict=False)) | kwargs
    first, second, ends = given["self"], given["mat2"], given.get("offs")
    groups: tuple[int, ...] = ()
    if first.dim() == second.dim():
        groups = ((ends if ends is not None and first.dim() < 3 else first).shape[0],)  # noqa: PLR2004 - matrices
    return first.new_empty(
        (*groups, first.shape[-2], second.shape[-1]), dtype=given.get("out_dtype") or first.dtype
    )


def _recurrent_layer(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], seen: Seen) -> Any:
    """Give a recurrent layer of oneDNN what it keeps for its backward course, to about 2 %.

    Gates and states of all steps, each several times; found by training single layers of many sizes.
    """
    del seen
    given = dict(zip(trait(func).arguments, args, strict=False)) | kwargs
    output, hidden, cell, workspace = func(*args, **kwargs)
    if given.get("train", False):
        step = hidden.numel() * hidden.element_size()
        steps = output.numel() // max(1, hidden.numel())
        workspace = output.new_empty((int(15.3 * steps + 10) * step,), dtype=torch.uint8)
    return output, hidden, cell, workspace


def _packed_linear(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], seen: Seen) -> Any:
    """Give the shape of a linear layer whose quantised weight is packed."""
    del kwargs, seen
    source, packed = args[0], args[1]
    width = packed.unpack()[0].shape[0]
    dynamic = "dynamic" in trait(func).name
    return source.new_empty((*source.shape[:-1], width), dtype=torch.float32 if dynamic else source.dtype)


def _packed_convolution(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], seen: Seen) -> Any:
    """Give the shape of a convolution whose quantised filters are packed, with their strides and margins."""
    del func, kwargs, seen
    source, packed = args[0], args[1]
    filters, sizes = packed.unpack()[0].shape, source.shape[2:]
    steps = zip(
        sizes,
        *(
            list(each)[-len(sizes) :]  # one dimension is packed as the last of two
            for each in (filters[2:], packed.stride(), packed.padding(), packed.dilation())
        ),
        strict=True,
    )
    shape = [(size + 2 * pad - gap * (taps - 1) - 1) // step + 1 for size, taps, step, pad, gap in steps]
    return source.new_empty((source.shape[0], filters[0], *shape))


def _quantized_spread(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], seen: Seen) -> Any:
    """Give the shape of an element-wise function of quantised tensors."""
    del func, kwargs, seen
    given = [arg for arg in args if isinstance(arg, Tensor)]
    shape = torch.broadcast_shapes(*(each.shape for each in given))  # type: ignore[no-untyped-call]
    return given[0].new_empty(shape)


def _quantized_cat(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], seen: Seen) -> Any:
    """Give the shape of quantised tensors beside each other."""
    del seen
    given = dict(zip(trait(func).arguments, args, strict=False)) | kwargs
    shape = list(given["qx"][0].shape)
    shape[given["dim"]] = sum(each.shape[given["dim"]] for each in given["qx"])
    return given["qx"][0].new_empty(shape)


def _dequantized(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], seen: Seen) -> Any:
    """Give the shape of a quantised tensor as floats."""
    del func, kwargs, seen
    return torch.empty(args[0].shape, dtype=torch.float32, device=META)


def _stacked(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], seen: Seen) -> Any:
    """Give the shape of a stack of like tensors; torch's own rule takes long where a loop stacks its past."""
    del seen
    given = dict(zip(trait(func).arguments, args, strict=False)) | kwargs
    tensors, axis = given["tensors"], given.get("dim", 0)
    kinds = {(t.shape, t.dtype, t.is_contiguous()) for t in tensors}
    shape, dtype, contiguous = kinds.pop() if len(kinds) == 1 else ((), None, False)
    if not contiguous or "out" in given or not -len(shape) - 1 <= axis <= len(shape):
        return func(*args, **kwargs)
    axis %= len(shape) + 1
    return torch.empty((*shape[:axis], len(tensors), *shape[axis:]), dtype=dtype, device=META)


def _elementwise(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], seen: Seen) -> Any:
    """Give the shape of a function of each element; torch's own rule imports its compiler."""
    del seen
    source = args[0]
    return source.new_empty(source.shape) if source.is_contiguous() and not kwargs else func(*args, **kwargs)


def _product(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], seen: Seen) -> Any:
    """Give the shape of a plain product; torch's own rule imports its compiler, which takes long."""
    del seen
    *_, first, second = (arg for arg in args if isinstance(arg, Tensor))
    fits = first.dim() == second.dim() == (3 if "bmm" in trait(func).name else 2)
    alike = len({arg.dtype for arg in args if isinstance(arg, Tensor)}) == 1
    if not fits or not alike or first.shape[:-2] != second.shape[:-2] or first.shape[-1] != second.shape[-2]:
        return func(*args, **kwargs)
    shape = (*first.shape[:-1], second.shape[-1])
    if kwargs.keys() - {"alpha", "beta"} or not _broadcasts(args[0].shape, shape, of=len(args)):
        return func(*args, **kwargs)
    return first.new_empty(shape)


def _broadcasts(shape: tuple[int, ...], into: tuple[int, ...], *, of: int) -> bool:
    """Whether what is added to a product fits it; a product of two has nothing added."""
    pairs = zip(reversed(shape), reversed(into), strict=False)
    return of == 2 or (len(shape) <= len(into) and all(one in {1, size} for one, size in pairs))  # noqa: PLR2004


Shapes = Callable[[Any, tuple[Any, ...], dict[str, Any], "Seen"], Any]
SHAPES: dict[str, Shapes] = {
    "aten._transformer_encoder_layer_fwd": _like_first,
    "aten.relu": _elementwise,
    "aten.mm": _product,
    "aten.addmm": _product,
    "aten.bmm": _product,
    "aten.baddbmm": _product,
    "aten._native_multi_head_attention": _attention_fast_path,
    "aten._grouped_mm": _grouped,
    "aten.mkldnn_rnn_layer": _recurrent_layer,
    "aten.stack": _stacked,
    "quantized.linear_dynamic": _packed_linear,
    "quantized.linear_relu_dynamic": _packed_linear,
    "quantized.linear": _packed_linear,
    "quantized.linear_relu": _packed_linear,
    "aten.dequantize": _dequantized,
    "quantized.cat": _quantized_cat,
    **{f"quantized.{name}{end}": _quantized_spread for name in ("add", "mul") for end in ("", "_relu")},
    **{f"quantized.conv{dims}d{end}": _packed_convolution for dims in (1, 2, 3) for end in ("", "_relu")},
}
