"""Meta tensors: what is known of tensors that are not computed."""

from __future__ import annotations

import copy
import pickle
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch")

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.dlpack import from_dlpack

from modeldyno.base.errors import RequestError
from modeldyno.models.loaders.torch_tracing.dispatch import DispatchEvent, MetaDispatchMode
from modeldyno.models.loaders.torch_tracing.meta_tensor import MetaTensor, StorageHandle
from modeldyno.models.loaders.torch_tracing.shape_rules import pad_packed_sequence

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 2**20


@dataclass
class Notes:
    """Records the events of a dispatch mode."""

    sizes: list[int] = field(default_factory=list)
    freed: list[int] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)

    def watch(self, call: DispatchEvent) -> None:
        """Record the operator, if it did anything."""
        if call.fresh:
            self.calls.append(call.trait.name.removeprefix("aten."))

    def allocate(self, size: int) -> int:
        """Record the size."""
        self.sizes.append(size)
        return len(self.sizes) - 1

    def grow(self, place: StorageHandle, size: int) -> None:
        """Record the new size."""
        self.sizes[place.index] = size

    def free(self, index: int) -> None:
        """Record the release."""
        self.freed.append(index)


@pytest.fixture
def notes() -> Notes:
    """Return an empty listener."""
    return Notes()


@pytest.fixture
def mode(notes: Notes) -> MetaDispatchMode:
    """Return a dispatch mode that is not active yet."""
    return MetaDispatchMode(notes)


def known_value(tensor: Tensor) -> Tensor | None:
    """Return the known values of a tensor."""
    assert isinstance(tensor, MetaTensor)
    return tensor.valid_values()


def read(tensor: Tensor) -> Any:
    """Return the values of a tensor, which must be known, as a list."""
    result = known_value(tensor)
    assert result is not None
    return result.tolist()


# --- values ------------------------------------------------------------------------------------

EXPRESSIONS: dict[str, Callable[[], Tensor]] = {
    "a range": lambda: torch.arange(5),
    "halves": lambda: torch.arange(0, 2, 0.5),
    "ones": lambda: torch.ones(2, 3),
    "full": lambda: torch.full((2,), 7),
    "an eye": lambda: torch.eye(3),
    "a triangle": lambda: torch.ones(3, 3).tril(),
    "sums": lambda: torch.arange(6).view(2, 3).cumsum(-1) + torch.tensor([1, 2, 3]),
    "a mask": lambda: torch.arange(4)[None] <= torch.arange(4)[:, None],
    "where": lambda: torch.where(torch.arange(4) > 1, 5, 6),
    "a literal": lambda: torch.tensor([[1.5, 2.5]]) * 2,
    "of an array": lambda: torch.from_numpy(np.arange(4)) + 1,
    "a slice": lambda: torch.arange(10)[2:8:2],
    "turned": lambda: torch.arange(6).view(2, 3).t().contiguous(),
    "joined": lambda: torch.cat([torch.arange(2), torch.arange(3)]),
    "stacked": lambda: torch.stack([torch.zeros(2), torch.ones(2)]),
    "repeated": lambda: torch.arange(3).repeat_interleave(2),
    "by counts": lambda: torch.repeat_interleave(torch.arange(3), torch.tensor([1, 0, 2])),
    "unlike": lambda: torch.unique(torch.tensor([3, 1, 3])),
    "sorted": lambda: torch.tensor([3, 1, 2]).sort().values,
    "the greatest": lambda: torch.tensor([3, 1, 2]).topk(2).indices,
    "where it is": lambda: torch.tensor([0, 1, 1]).nonzero(),
    "chosen": lambda: torch.arange(4)[torch.tensor([True, False, True, False])],
    "in place": lambda: torch.zeros(3, dtype=torch.int64).add_(2).mul_(3),
    "filled": lambda: torch.empty(2, 2, dtype=torch.int64).fill_(4),
    "one entry set": lambda: _with_entry(torch.zeros(4)),
    "scattered": lambda: torch.zeros(4).index_fill_(0, torch.tensor([1, 3]), 1),
    "hot": lambda: functional.one_hot(torch.tensor([0, 2]), 3),
    "new": lambda: torch.arange(3).new_zeros(2) + torch.zeros_like(torch.arange(2)),
    "product": lambda: torch.arange(6.0).view(2, 3) @ torch.ones(3, 1),
    "an outer product": lambda: torch.outer(torch.arange(3.0), torch.arange(2.0)),
    "converted": lambda: torch.arange(3).to(torch.float16) / 2,
}


def _with_entry(tensor: Tensor) -> Tensor:
    tensor[2] = 5
    return tensor


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_small_tensors_that_depend_on_nothing_are_computed(name: str, mode: MetaDispatchMode) -> None:
    """Values computed under the dispatch mode are those computed without it."""
    expected = EXPRESSIONS[name]()
    array = expected.numpy()
    with mode:
        result = EXPRESSIONS[name]()
        assert isinstance(result, MetaTensor)
        assert (result.shape, result.dtype, result.stride()) == (
            expected.shape,
            expected.dtype,
            expected.stride(),
        )
        assert result.tolist() == expected.tolist()
        assert np.array_equal(result.numpy(), array)
        assert read(result) == expected.tolist()
    assert not mode.assumptions


def test_random_numbers_are_not_known(mode: MetaDispatchMode) -> None:
    """Random tensors of torch are not drawn."""
    with mode:
        made = [torch.rand(3), torch.randn(2, 2), torch.randint(0, 9, (4,)), torch.randperm(5)]
        made += [torch.zeros(3).normal_(), functional.dropout(torch.ones(4)), torch.ones(2).bernoulli()]
        assert [known_value(tensor) for tensor in made] == [None] * len(made)


def test_memory_as_it_is_found_is_not_known(mode: MetaDispatchMode) -> None:
    """Uninitialised floating-point memory has no known values."""
    with mode:
        assert known_value(torch.empty(3)) is None
        assert known_value(torch.empty(3) + 1) is None


def test_large_tensors_are_not_computed(mode: MetaDispatchMode) -> None:
    """A tensor of more than a million elements has a shape only, and so have its results."""
    with mode:
        large = torch.ones(10**6, 10**6)
        assert known_value(large) is None
        assert known_value(large[:1, :1]) is None
        assert large.shape == (10**6, 10**6)
        assert known_value(torch.arange(2 * MIB)) is None
        assert known_value(torch.arange(2 * MIB)[:5]) is None


def test_the_unknown_spreads(mode: MetaDispatchMode) -> None:
    """Results of unknown values are unknown; results of the shape alone are not."""
    with mode:
        unknown = mode.make_tensor((3,), torch.float32)
        assert known_value(unknown + torch.ones(3)) is None
        assert known_value(torch.cat([unknown, torch.ones(3)])) is None
        assert read(torch.ones(unknown.shape)) == [1, 1, 1]
        assert read(torch.arange(len(unknown))) == [0, 1, 2]


def test_what_is_written_into_is_not_known_any_more(mode: MetaDispatchMode) -> None:
    """Writing unknown values into a tensor invalidates the values of it and of every view of it."""
    with mode:
        whole = torch.zeros(4)
        part, turned, apart = whole[:2], whole.view(2, 2).t(), whole.clone()
        part.add_(mode.make_tensor((2,), torch.float32))

        assert [known_value(tensor) for tensor in (whole, part, turned, whole[3:])] == [None] * 4
        assert read(apart) == [0] * 4


def test_what_is_known_is_written_through_views(mode: MetaDispatchMode) -> None:
    """Known values written into a view are seen in the base, and in other views of it."""
    with mode:
        whole = torch.zeros(4)
        other = whole.view(2, 2)
        whole[1:3] = torch.tensor([5.0, 6.0])
        whole[:1].fill_(7)

        assert read(whole) == [7, 5, 6, 0]
        assert read(other) == [[7, 5], [6, 0]]


def test_an_output_that_is_given_is_written_into(mode: MetaDispatchMode) -> None:
    """An ``out=`` result is in the memory of the given tensor."""
    with mode:
        out = torch.zeros(3)
        assert torch.add(torch.ones(3), torch.ones(3), out=out) is out
        assert read(out) == [2, 2, 2]
        torch.add(torch.ones(3), mode.make_tensor((3,), torch.float32), out=out)
        assert known_value(out) is None


def test_shapes_change_in_place(mode: MetaDispatchMode) -> None:
    """Operators that change a tensor's own shape change its meta tensor's."""
    with mode:
        tensor = torch.arange(6)
        tensor.unsqueeze_(0).transpose_(0, 1)
        assert list(tensor.shape) == [6, 1]
        tensor.squeeze_(1)
        assert list(tensor.shape) == [6]
        assert tensor.tolist() == [0, 1, 2, 3, 4, 5]


def test_what_is_unknown_is_assumed(mode: MetaDispatchMode) -> None:
    """Reading an unknown tensor returns ones, or false, and the assumption is recorded."""
    with mode:
        unknown = mode.make_tensor((2,), torch.float32)
        assert unknown.tolist() == [1, 1]
        assert unknown.numpy().tolist() == [1, 1]
        assert unknown.sum().item() == 1
        assert not (unknown > 0).any()
        assert len(mode.assumptions) == 2


# --- places ------------------------------------------------------------------------------------


def test_sequences_of_single_numbers_are_numbers(mode: MetaDispatchMode) -> None:
    """Unknown values are read as assumed in an index, in new data and in a text."""
    with mode:
        unknown = mode.make_tensor((4, 4), torch.int64)
        rows = tuple(unknown[0])
        assert known_value(unknown[rows, rows]) is None
        assert unknown[rows, rows].shape == (4,)
        assert unknown[list(rows)].shape == (4, 4)
        unknown[rows, rows] = 0
        for make in (torch.tensor, torch.as_tensor):
            assert make([rows, list(rows)]).tolist() == [[1] * 4] * 2
        assert f"expert_{rows[0]}" == "expert_1"
        assert f"{unknown}" == "MetaTensor((4, 4), torch.int64)"
    assert "taken as 1" in " ".join(mode.assumptions)


def test_views_lie_where_their_base_lies(mode: MetaDispatchMode, notes: Notes) -> None:
    """Views take no memory and do no work; a copy has its own memory."""
    with mode:
        base = mode.make_tensor((4, 6), torch.float32)
        before = len(notes.sizes)
        views = [base.t(), base[1:], base.view(24), base.unsqueeze(0).expand(9, -1, -1), base.detach()]
        views += list(base.chunk(2)) + list(base.unbind())

        assert {view.handle for view in views if isinstance(view, MetaTensor)} == {base.handle}
        assert len(notes.sizes) == before
        assert notes.calls == []

        copied = base.t().contiguous()
        assert isinstance(copied, MetaTensor)
        assert copied.handle is not base.handle
        assert notes.sizes[before:] == [96]
        assert notes.calls == ["clone"]


def test_storage_is_freed_with_its_last_meta_tensor(mode: MetaDispatchMode, notes: Notes) -> None:
    """Memory lives as long as its last view."""
    with mode:
        first = mode.make_tensor((8,), torch.float32)
        second = first * 2
        view = second[2:]
        assert notes.freed == []
        del second
        assert notes.freed == []
        del view
        assert notes.freed == [1]
        del first
        assert notes.freed == [1, 0]


def test_what_autograd_keeps_is_not_free(mode: MetaDispatchMode, notes: Notes) -> None:
    """A tensor that backward needs lives until the autograd graph is gone."""
    with mode:
        weight = nn.Parameter(mode.make_tensor((4,), torch.float32))
        squares = weight.exp()
        total = squares.sum()
        index = squares.handle.index  # type: ignore[attr-defined]
        del squares
        assert index not in notes.freed
        total.backward()  # type: ignore[no-untyped-call]
        del total
        assert index in notes.freed
        assert isinstance(weight.grad, MetaTensor)


def test_plain_tensors_are_mirrored_once(mode: MetaDispatchMode, notes: Notes) -> None:
    """A plain tensor has one meta tensor, and parts of one memory share one handle of its size."""
    whole = torch.arange(10.0)
    slice_ = whole[4:6]
    with mode:
        first, again, part = (
            mode.meta_tensor_of(whole),
            mode.meta_tensor_of(whole),
            mode.meta_tensor_of(slice_),
        )
        doubled = whole * 2

    assert first is again
    assert first.handle is part.handle
    assert notes.sizes[0] == 40
    assert read(part) == [4, 5]
    assert read(doubled) == list(range(0, 20, 2))
    assert whole.tolist() == list(range(10))


def test_what_nobody_has_any_more_is_forgotten(mode: MetaDispatchMode, notes: Notes) -> None:
    """A plain tensor that only the dispatch mode references is dropped; one of the program is not."""
    mine = torch.ones(3)
    with mode:
        mode.meta_tensor_of(mine)
        mode.meta_tensor_of(torch.from_numpy(np.ones(5)))
        mode.drop_unreferenced()
        assert notes.sizes == [12, 40]
        assert notes.freed == [1]
        assert mode.meta_tensor_of(mine) is mode.meta_tensor_of(mine)
        assert len(notes.sizes) == 2


def test_plain_tensors_are_not_written_to(mode: MetaDispatchMode) -> None:
    """Writing into a plain tensor under the mode changes the known values, not the tensor."""
    plain = torch.zeros(3)
    with mode:
        assert plain.add_(1) is plain
        assert read(mode.meta_tensor_of(plain)) == [1, 1, 1]
    assert plain.tolist() == [0, 0, 0]


def test_other_libraries_get_the_numbers(mode: MetaDispatchMode) -> None:
    """NumPy and DLPack get the known values, of meta tensors and of plain tensors."""
    plain, written = torch.arange(4.0), torch.zeros(2)
    with mode:
        written.add_(3)
        assert np.asarray(torch.from_numpy(np.arange(4))).tolist() == [0, 1, 2, 3]
        assert plain.numpy().tolist() == np.asarray(plain).tolist() == plain.tolist() == [0, 1, 2, 3]
        assert plain.detach().numpy().tolist() == [0, 1, 2, 3]
        assert written.numpy().tolist() == [3, 3]
        assert np.from_dlpack(torch.ones(2)).tolist() == [1, 1]
        assert from_dlpack(torch.ones(2)).tolist() == [1, 1]
        with MetaDispatchMode(Notes()):
            assert plain.numpy().tolist() == [0, 1, 2, 3]
        assert plain.numpy().tolist() == [0, 1, 2, 3]
    assert "numpy" not in vars(Tensor)
    assert plain.numpy().tolist() == [0, 1, 2, 3]


def test_what_works_on_memory_itself_is_harmless(mode: MetaDispatchMode) -> None:
    """Sharing memory changes nothing, copying shares the handle, and access to memory is rejected."""
    with mode:
        made = torch.ones(2)
        assert isinstance(made, MetaTensor)
        assert made.share_memory_() is made
        assert copy.copy(made).handle is made.handle
        with pytest.raises(TypeError, match="no values"):
            made.apply_(abs)


# --- as on the CPU --------------------------------------------------------------------------------

ATTENTIONS: list[tuple[str, dict[str, Any]]] = [
    ("plain", {}),
    ("causal", {"is_causal": True}),
    ("masked", {"attn_mask": torch.ones(6, 6, dtype=torch.bool).tril()}),
    ("with a bias", {"attn_mask": torch.zeros(6, 6)}),
    ("with dropout", {"dropout_p": 0.1}),
    ("in halves", {"dtype": torch.float16}),
    ("in bfloat16", {"dtype": torch.bfloat16}),
    ("in doubles", {"dtype": torch.float64}),
    ("three-dimensional", {"dims": 3}),
    ("groups", {"enable_gqa": True}),
    ("with a learned bias", {"learned": True}),
    ("with gradients", {"grad": True}),
    ("wide values", {"values": 16}),
]


def attend(
    *,
    dtype: torch.dtype = torch.float32,
    dims: int = 4,
    learned: bool = False,
    grad: bool = False,
    values: int = 8,
    **options: Any,
) -> Tensor:
    """Call torch's attention on some shapes."""
    shape = (2, 4, 6, 8)[4 - dims :]
    heads = 2 if options.get("enable_gqa") else 4
    query = torch.zeros(shape, dtype=dtype, requires_grad=grad)
    key = torch.zeros((2, heads, 6, 8)[4 - dims :], dtype=dtype, requires_grad=grad)
    value = torch.zeros((2, heads, 6, values)[4 - dims :], dtype=dtype, requires_grad=grad)
    if learned:
        options["attn_mask"] = torch.zeros(6, 6, requires_grad=True)
    return functional.scaled_dot_product_attention(query, key, value, **options)


@pytest.mark.parametrize(("name", "options"), ATTENTIONS)
def test_attention_is_chosen_as_on_the_cpu(
    name: str, options: dict[str, Any], mode: MetaDispatchMode, notes: Notes
) -> None:
    """The attention operator that torch takes on meta tensors is the one that it takes on real tensors."""
    del name
    with torch.profiler.profile(acc_events=True) as profile:
        expected = attend(**options)
    real = {event.key.removeprefix("aten::") for event in profile.key_averages()}
    with mode:
        result = attend(**options)

    fused = "_scaled_dot_product_flash_attention_for_cpu"
    assert (fused in notes.calls) == (fused in real)
    assert ("bmm" in notes.calls) == ("bmm" in real)
    assert (result.shape, result.dtype) == (expected.shape, expected.dtype)


def test_meta_tensors_claim_to_be_on_the_cpu(mode: MetaDispatchMode) -> None:
    """A program that checks sees plain CPU tensors."""
    with mode:
        made = torch.empty(2, 3, device="cpu")
        assert made.device == torch.device("cpu")
        assert not made.is_meta
        assert not made.is_cuda
        assert made.to("cpu") is made
        assert torch.zeros(2, device=made.device).device.type == "cpu"
        assert "(2, 3)" in repr(made)


def test_a_module_is_converted_in_place(mode: MetaDispatchMode) -> None:
    """``.to(dtype)`` converts the parameters under the mode, and tied ones stay tied."""
    with mode:
        module = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False), nn.BatchNorm1d(4))
        module[1].weight = module[0].weight
        parameter = module[0].weight
        module.to(torch.bfloat16)

        assert module[0].weight is parameter is module[1].weight
        assert all(isinstance(p, MetaTensor) and isinstance(p, nn.Parameter) for p in module.parameters())
        assert {t.dtype for t in module.state_dict().values()} == {torch.bfloat16, torch.int64}
        assert isinstance(parameter, MetaTensor)
        assert parameter.backing.dtype is torch.bfloat16
        assert module.half()[0].weight.dtype is torch.float16
    assert torch.__future__.get_swap_module_params_on_conversion() is False


def test_meta_tensors_are_copied_with_their_module(mode: MetaDispatchMode) -> None:
    """A deep copy has parameters with their own storage, tied as the original's are."""
    with mode:
        module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        module[1].weight = module[0].weight
        copied = copy.deepcopy(module)

        assert copied[0].weight is copied[1].weight
        assert copied[0].weight.handle is not module[0].weight.handle  # type: ignore[union-attr]
        assert isinstance(copied[0].weight, nn.Parameter)
        assert copied[0].weight.requires_grad
        assert len(list(copied.parameters())) == 3


def test_states_are_loaded_and_weights_initialised(mode: MetaDispatchMode) -> None:
    """Weight initialisation of modules works on meta tensors of any size."""
    with mode:
        module = nn.Linear(10**6, 10**6)
        nn.init.orthogonal_(nn.Linear(8, 8).weight)
        nn.init.trunc_normal_(module.weight, std=0.02)
        nn.init.kaiming_uniform_(module.weight)
        other = nn.Linear(10**6, 10**6)
        other.load_state_dict(module.state_dict())
        assert other.weight.shape == (10**6, 10**6)


# --- limits ----------------------------------------------------------------------------------------


def test_a_meta_tensor_is_not_saved(mode: MetaDispatchMode) -> None:
    """A meta tensor cannot be saved."""
    with mode:
        made = torch.ones(2)
        with pytest.raises(TypeError, match="cannot be saved"):
            pickle.dumps(made)


def test_a_meta_tensor_needs_its_dispatch_mode(mode: MetaDispatchMode) -> None:
    """Using a meta tensor without its dispatch mode is an error."""
    with mode:
        made = torch.ones(2)
    with pytest.raises(RuntimeError, match="without its dispatch mode"):
        _ = made + 1


def test_wrong_shapes_are_torchs_own_objection(mode: MetaDispatchMode) -> None:
    """Errors of torch about shapes are those of the CPU."""
    with pytest.raises(RuntimeError, match=r"cannot be multiplied|must match|incompatible|size mismatch"):
        torch.ones(2, 3) @ torch.ones(2, 3)
    with mode, pytest.raises(RuntimeError) as caught:
        torch.empty(2, 3) @ torch.empty(2, 3)
    assert not isinstance(caught.value, RequestError)
    assert re.search(r"multipl|match|expected|reduction", str(caught.value))


STACKS: dict[str, Callable[[], Tensor]] = {
    "alike": lambda: torch.stack([torch.rand(2, 3) for _ in range(4)]),
    "of scalars": lambda: torch.stack([torch.rand(()), torch.rand(())]),
    "at the end": lambda: torch.stack([torch.rand(2, 3), torch.rand(2, 3)], dim=-1),
    "in the middle": lambda: torch.stack([torch.rand(2, 3, dtype=torch.float64)] * 3, dim=1),
    "of unlike dtypes": lambda: torch.stack([torch.rand(2), torch.rand(2).long()]),
    "turned": lambda: torch.stack([torch.rand(2, 3).t(), torch.rand(2, 3).t()], 2),
    "into another": lambda: torch.stack([torch.rand(2), torch.rand(2)], out=torch.empty(2, 2)),
}


@pytest.mark.parametrize("name", STACKS)
def test_a_stack_has_the_shape_that_torch_gives_it(name: str, mode: MetaDispatchMode) -> None:
    """Stacked tensors have torch's shape, dtype and strides."""
    expected = STACKS[name]()
    with mode:
        result = STACKS[name]()

    assert (result.shape, result.dtype, result.stride()) == (
        expected.shape,
        expected.dtype,
        expected.stride(),
    )


@pytest.mark.parametrize(
    ("sizes", "axis", "message"),
    [((2, 3), 0, "equal size"), ((2, 2), 2, "out of range"), ((2, 2), -3, "out of range"), ((), 0, "empty")],
)
def test_what_cannot_be_stacked_is_torchs_own_objection(
    sizes: tuple[int, ...], axis: int, message: str, mode: MetaDispatchMode
) -> None:
    """Different sizes, an invalid axis and an empty list raise torch's own errors."""
    with mode, pytest.raises((RuntimeError, IndexError), match=message):
        torch.stack([torch.rand(size) for size in sizes], axis)


def test_dispatch_modes_nest(notes: Notes) -> None:
    """A nested dispatch mode leaves the outer one unchanged."""
    outer, inner = MetaDispatchMode(notes), MetaDispatchMode(Notes())
    with outer:
        first = torch.ones(2)
        with inner:
            torch.ones(3)
        assert read(first + 1) == [2, 2]
    assert type(torch.ones(2)) is Tensor


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("total", [0, 12])
def test_padding_is_what_torch_pads(batch_first: bool, total: int) -> None:
    """The replacement of torch's function returns the same values, lengths and strides."""
    lengths = torch.tensor([10, 7, 7, 2])
    packed = nn.utils.rnn.pack_padded_sequence(torch.randn(4, 10, 3), lengths, batch_first=True)
    assert packed.batch_sizes is not None
    theirs = torch._VF._pad_packed_sequence(packed.data, packed.batch_sizes, batch_first, -1.5, total)
    ours = pad_packed_sequence(packed.data, packed.batch_sizes, batch_first, -1.5, total)

    assert torch.equal(ours[0], theirs[0])
    assert ours[0].stride() == theirs[0].stride()
    assert ours[1].tolist() == theirs[1].tolist() == lengths.tolist()
