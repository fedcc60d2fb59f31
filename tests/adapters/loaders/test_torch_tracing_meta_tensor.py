"""Shadows: what is known of tensors that are not computed."""

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

from modeldyno.adapters.loaders.torch_tracing.dispatch import Call, Stage
from modeldyno.adapters.loaders.torch_tracing.meta_tensor import Place, Shadow
from modeldyno.adapters.loaders.torch_tracing.shape_rules import padded
from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 2**20


@dataclass
class Notes:
    """Notes what happens on a stage."""

    sizes: list[int] = field(default_factory=list)
    freed: list[int] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)

    def watch(self, call: Call) -> None:
        """Note the operator, if it did anything."""
        if call.fresh:
            self.calls.append(call.trait.name.removeprefix("aten."))

    def allocate(self, size: int) -> int:
        """Note the size."""
        self.sizes.append(size)
        return len(self.sizes) - 1

    def grow(self, place: Place, size: int) -> None:
        """Note the new size."""
        self.sizes[place.index] = size

    def free(self, index: int) -> None:
        """Note the end."""
        self.freed.append(index)


@pytest.fixture
def notes() -> Notes:
    """Give an empty sheet."""
    return Notes()


@pytest.fixture
def stage(notes: Notes) -> Stage:
    """Give a stage that is not entered yet."""
    return Stage(notes)


def seen(tensor: Tensor) -> Tensor | None:
    """Give the numbers that are known of a tensor."""
    assert isinstance(tensor, Shadow)
    return tensor.known()


def read(tensor: Tensor) -> Any:
    """Give the numbers that must be known of a tensor, as a list."""
    found = seen(tensor)
    assert found is not None
    return found.tolist()


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
def test_small_tensors_that_depend_on_nothing_are_computed(name: str, stage: Stage) -> None:
    """What a program makes of numbers is known on the stage as it is off it."""
    expected = EXPRESSIONS[name]()
    array = expected.numpy()
    with stage:
        found = EXPRESSIONS[name]()
        assert isinstance(found, Shadow)
        assert (found.shape, found.dtype, found.stride()) == (
            expected.shape,
            expected.dtype,
            expected.stride(),
        )
        assert found.tolist() == expected.tolist()
        assert np.array_equal(found.numpy(), array)
        assert read(found) == expected.tolist()
    assert not stage.assumptions


def test_random_numbers_are_not_known(stage: Stage) -> None:
    """What torch draws is not drawn."""
    with stage:
        made = [torch.rand(3), torch.randn(2, 2), torch.randint(0, 9, (4,)), torch.randperm(5)]
        made += [torch.zeros(3).normal_(), functional.dropout(torch.ones(4)), torch.ones(2).bernoulli()]
        assert [seen(tensor) for tensor in made] == [None] * len(made)


def test_memory_as_it_is_found_is_not_known(stage: Stage) -> None:
    """What lies in a fresh piece of memory of fractions is nobody's business."""
    with stage:
        assert seen(torch.empty(3)) is None
        assert seen(torch.empty(3) + 1) is None


def test_large_tensors_are_not_computed(stage: Stage) -> None:
    """A tensor of more than a million elements has a shape only, and so has what is made of it."""
    with stage:
        large = torch.ones(10**6, 10**6)
        assert seen(large) is None
        assert seen(large[:1, :1]) is None
        assert large.shape == (10**6, 10**6)
        assert seen(torch.arange(2 * MIB)) is None
        assert seen(torch.arange(2 * MIB)[:5]) is None


def test_the_unknown_spreads(stage: Stage) -> None:
    """What is made of something unknown is unknown; what only takes its shape is not."""
    with stage:
        unknown = stage.shadow((3,), torch.float32)
        assert seen(unknown + torch.ones(3)) is None
        assert seen(torch.cat([unknown, torch.ones(3)])) is None
        assert read(torch.ones(unknown.shape)) == [1, 1, 1]
        assert read(torch.arange(len(unknown))) == [0, 1, 2]


def test_what_is_written_into_is_not_known_any_more(stage: Stage) -> None:
    """Something unknown that is written into a tensor ends what is known of it and of every view of it."""
    with stage:
        whole = torch.zeros(4)
        part, turned, apart = whole[:2], whole.view(2, 2).t(), whole.clone()
        part.add_(stage.shadow((2,), torch.float32))

        assert [seen(tensor) for tensor in (whole, part, turned, whole[3:])] == [None] * 4
        assert read(apart) == [0] * 4


def test_what_is_known_is_written_through_views(stage: Stage) -> None:
    """Something known that is written into a view is seen in the whole, and in other views of it."""
    with stage:
        whole = torch.zeros(4)
        other = whole.view(2, 2)
        whole[1:3] = torch.tensor([5.0, 6.0])
        whole[:1].fill_(7)

        assert read(whole) == [7, 5, 6, 0]
        assert read(other) == [[7, 5], [6, 0]]


def test_an_output_that_is_given_is_written_into(stage: Stage) -> None:
    """What is computed into a tensor that is given lies there."""
    with stage:
        out = torch.zeros(3)
        assert torch.add(torch.ones(3), torch.ones(3), out=out) is out
        assert read(out) == [2, 2, 2]
        torch.add(torch.ones(3), stage.shadow((3,), torch.float32), out=out)
        assert seen(out) is None


def test_shapes_change_in_place(stage: Stage) -> None:
    """Operators that change a tensor's own shape change its shadow's."""
    with stage:
        tensor = torch.arange(6)
        tensor.unsqueeze_(0).transpose_(0, 1)
        assert list(tensor.shape) == [6, 1]
        tensor.squeeze_(1)
        assert list(tensor.shape) == [6]
        assert tensor.tolist() == [0, 1, 2, 3, 4, 5]


def test_what_is_unknown_is_assumed(stage: Stage) -> None:
    """Asking an unknown tensor for its numbers gives ones, or false, and the assumption is kept."""
    with stage:
        unknown = stage.shadow((2,), torch.float32)
        assert unknown.tolist() == [1, 1]
        assert unknown.numpy().tolist() == [1, 1]
        assert unknown.sum().item() == 1
        assert not (unknown > 0).any()
        assert len(stage.assumptions) == 2


# --- places ------------------------------------------------------------------------------------


def test_sequences_of_single_numbers_are_numbers(stage: Stage) -> None:
    """Numbers that are not computed are read in an index, in new data and in a text as they are assumed."""
    with stage:
        unknown = stage.shadow((4, 4), torch.int64)
        rows = tuple(unknown[0])
        assert seen(unknown[rows, rows]) is None
        assert unknown[rows, rows].shape == (4,)
        assert unknown[list(rows)].shape == (4, 4)
        unknown[rows, rows] = 0
        for make in (torch.tensor, torch.as_tensor):
            assert make([rows, list(rows)]).tolist() == [[1] * 4] * 2
        assert f"expert_{rows[0]}" == "expert_1"
        assert f"{unknown}" == "Shadow((4, 4), torch.int64)"
    assert "taken as 1" in " ".join(stage.assumptions)


def test_views_lie_where_their_base_lies(stage: Stage, notes: Notes) -> None:
    """Views take no memory and are no work; a copy lies elsewhere."""
    with stage:
        base = stage.shadow((4, 6), torch.float32)
        before = len(notes.sizes)
        views = [base.t(), base[1:], base.view(24), base.unsqueeze(0).expand(9, -1, -1), base.detach()]
        views += list(base.chunk(2)) + list(base.unbind())

        assert {view.place for view in views if isinstance(view, Shadow)} == {base.place}
        assert len(notes.sizes) == before
        assert notes.calls == []

        copied = base.t().contiguous()
        assert isinstance(copied, Shadow)
        assert copied.place is not base.place
        assert notes.sizes[before:] == [96]
        assert notes.calls == ["clone"]


def test_a_place_is_free_when_the_last_shadow_is_gone(stage: Stage, notes: Notes) -> None:
    """A piece of memory lives as long as its last view."""
    with stage:
        first = stage.shadow((8,), torch.float32)
        second = first * 2
        view = second[2:]
        assert notes.freed == []
        del second
        assert notes.freed == []
        del view
        assert notes.freed == [1]
        del first
        assert notes.freed == [1, 0]


def test_what_autograd_keeps_is_not_free(stage: Stage, notes: Notes) -> None:
    """A tensor that the backward course will need lives until the graph of autograd is gone."""
    with stage:
        weight = nn.Parameter(stage.shadow((4,), torch.float32))
        squares = weight.exp()
        total = squares.sum()
        index = squares.place.index  # type: ignore[attr-defined]
        del squares
        assert index not in notes.freed
        total.backward()  # type: ignore[no-untyped-call]
        del total
        assert index in notes.freed
        assert isinstance(weight.grad, Shadow)


def test_plain_tensors_come_onto_the_stage_once(stage: Stage, notes: Notes) -> None:
    """A plain tensor has one shadow, and parts of one memory lie in one place of its size."""
    whole = torch.arange(10.0)
    slice_ = whole[4:6]
    with stage:
        first, again, part = stage.of(whole), stage.of(whole), stage.of(slice_)
        doubled = whole * 2

    assert first is again
    assert first.place is part.place
    assert notes.sizes[0] == 40
    assert read(part) == [4, 5]
    assert read(doubled) == list(range(0, 20, 2))
    assert whole.tolist() == list(range(10))


def test_what_nobody_has_any_more_is_forgotten(stage: Stage, notes: Notes) -> None:
    """A plain tensor that only the stage still has is let go of, one that a program has is not."""
    mine = torch.ones(3)
    with stage:
        stage.of(mine)
        stage.of(torch.from_numpy(np.ones(5)))
        stage.forget()
        assert notes.sizes == [12, 40]
        assert notes.freed == [1]
        assert stage.of(mine) is stage.of(mine)
        assert len(notes.sizes) == 2


def test_plain_tensors_are_not_written_to(stage: Stage) -> None:
    """Writing into a plain tensor on the stage changes what is known on the stage, not the tensor."""
    plain = torch.zeros(3)
    with stage:
        assert plain.add_(1) is plain
        assert read(stage.of(plain)) == [1, 1, 1]
    assert plain.tolist() == [0, 0, 0]


def test_other_libraries_get_the_numbers(stage: Stage) -> None:
    """NumPy and DLPack get the numbers that are known, of shadows and of plain tensors alike."""
    plain, written = torch.arange(4.0), torch.zeros(2)
    with stage:
        written.add_(3)
        assert np.asarray(torch.from_numpy(np.arange(4))).tolist() == [0, 1, 2, 3]
        assert plain.numpy().tolist() == np.asarray(plain).tolist() == plain.tolist() == [0, 1, 2, 3]
        assert plain.detach().numpy().tolist() == [0, 1, 2, 3]
        assert written.numpy().tolist() == [3, 3]
        assert np.from_dlpack(torch.ones(2)).tolist() == [1, 1]
        assert from_dlpack(torch.ones(2)).tolist() == [1, 1]
        with Stage(Notes()):
            assert plain.numpy().tolist() == [0, 1, 2, 3]
        assert plain.numpy().tolist() == [0, 1, 2, 3]
    assert "numpy" not in vars(Tensor)
    assert plain.numpy().tolist() == [0, 1, 2, 3]


def test_what_works_on_memory_itself_is_harmless(stage: Stage) -> None:
    """Sharing memory changes nothing, copying shares the place, and going through memory is refused."""
    with stage:
        made = torch.ones(2)
        assert isinstance(made, Shadow)
        assert made.share_memory_() is made
        assert copy.copy(made).place is made.place
        with pytest.raises(TypeError, match="no numbers"):
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
    name: str, options: dict[str, Any], stage: Stage, notes: Notes
) -> None:
    """The operator of attention that torch takes on shadows is the one that it takes on real tensors."""
    del name
    with torch.profiler.profile(acc_events=True) as profile:
        expected = attend(**options)
    real = {event.key.removeprefix("aten::") for event in profile.key_averages()}
    with stage:
        found = attend(**options)

    fused = "_scaled_dot_product_flash_attention_for_cpu"
    assert (fused in notes.calls) == (fused in real)
    assert ("bmm" in notes.calls) == ("bmm" in real)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)


def test_shadows_say_that_they_are_on_the_cpu(stage: Stage) -> None:
    """A program that asks finds plain tensors of the CPU."""
    with stage:
        made = torch.empty(2, 3, device="cpu")
        assert made.device == torch.device("cpu")
        assert not made.is_meta
        assert not made.is_cuda
        assert made.to("cpu") is made
        assert torch.zeros(2, device=made.device).device.type == "cpu"
        assert "(2, 3)" in repr(made)


def test_a_module_is_converted_in_place(stage: Stage) -> None:
    """``.to(dtype)`` on the stage gives the same parameters another dtype, and tied ones stay tied."""
    with stage:
        module = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False), nn.BatchNorm1d(4))
        module[1].weight = module[0].weight
        parameter = module[0].weight
        module.to(torch.bfloat16)

        assert module[0].weight is parameter is module[1].weight
        assert all(isinstance(p, Shadow) and isinstance(p, nn.Parameter) for p in module.parameters())
        assert {t.dtype for t in module.state_dict().values()} == {torch.bfloat16, torch.int64}
        assert isinstance(parameter, Shadow)
        assert parameter.shape_of.dtype is torch.bfloat16
        assert module.half()[0].weight.dtype is torch.float16
    assert torch.__future__.get_swap_module_params_on_conversion() is False


def test_shadows_are_copied_with_their_module(stage: Stage) -> None:
    """A deep copy has parameters in places of their own, tied as the original's are."""
    with stage:
        module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        module[1].weight = module[0].weight
        copied = copy.deepcopy(module)

        assert copied[0].weight is copied[1].weight
        assert copied[0].weight.place is not module[0].weight.place  # type: ignore[union-attr]
        assert isinstance(copied[0].weight, nn.Parameter)
        assert copied[0].weight.requires_grad
        assert len(list(copied.parameters())) == 3


def test_states_are_loaded_and_weights_initialised(stage: Stage) -> None:
    """What modules do with their weights when they are made is done with shadows of any size."""
    with stage:
        module = nn.Linear(10**6, 10**6)
        nn.init.orthogonal_(nn.Linear(8, 8).weight)
        nn.init.trunc_normal_(module.weight, std=0.02)
        nn.init.kaiming_uniform_(module.weight)
        other = nn.Linear(10**6, 10**6)
        other.load_state_dict(module.state_dict())
        assert other.weight.shape == (10**6, 10**6)


# --- limits ----------------------------------------------------------------------------------------


def test_a_shadow_is_not_saved(stage: Stage) -> None:
    """A shadow has nothing to save."""
    with stage:
        made = torch.ones(2)
        with pytest.raises(TypeError, match="cannot be saved"):
            pickle.dumps(made)


def test_a_shadow_has_no_life_outside_of_its_stage(stage: Stage) -> None:
    """Work on a shadow after the stage is left is refused, not done on nothing."""
    with stage:
        made = torch.ones(2)
    with pytest.raises(RuntimeError, match="outside of its stage"):
        _ = made + 1


def test_wrong_shapes_are_torchs_own_objection(stage: Stage) -> None:
    """What torch has against shapes it says as on the CPU."""
    with pytest.raises(RuntimeError, match=r"cannot be multiplied|must match|incompatible|size mismatch"):
        torch.ones(2, 3) @ torch.ones(2, 3)
    with stage, pytest.raises(RuntimeError) as caught:
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
def test_a_stack_has_the_shape_that_torch_gives_it(name: str, stage: Stage) -> None:
    """Tensors are stacked on the stage as off it: shape, dtype and strides are torch's."""
    expected = STACKS[name]()
    with stage:
        found = STACKS[name]()

    assert (found.shape, found.dtype, found.stride()) == (expected.shape, expected.dtype, expected.stride())


@pytest.mark.parametrize(
    ("sizes", "axis", "told"),
    [((2, 3), 0, "equal size"), ((2, 2), 2, "out of range"), ((2, 2), -3, "out of range"), ((), 0, "empty")],
)
def test_what_cannot_be_stacked_is_torchs_own_objection(
    sizes: tuple[int, ...], axis: int, told: str, stage: Stage
) -> None:
    """Unlike sizes, an axis that is not there and an empty list are refused as torch refuses them."""
    with stage, pytest.raises((RuntimeError, IndexError), match=told):
        torch.stack([torch.rand(size) for size in sizes], axis)


def test_stages_nest(notes: Notes) -> None:
    """A stage within another leaves the outer one as it was."""
    outer, inner = Stage(notes), Stage(Notes())
    with outer:
        first = torch.ones(2)
        with inner:
            torch.ones(3)
        assert read(first + 1) == [2, 2]
    assert type(torch.ones(2)) is Tensor


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("total", [0, 12])
def test_padding_is_what_torch_pads(batch_first: bool, total: int) -> None:
    """What stands for torch's function on a stage gives the same numbers, lengths and strides."""
    lengths = torch.tensor([10, 7, 7, 2])
    packed = nn.utils.rnn.pack_padded_sequence(torch.randn(4, 10, 3), lengths, batch_first=True)
    assert packed.batch_sizes is not None
    theirs = torch._VF._pad_packed_sequence(packed.data, packed.batch_sizes, batch_first, -1.5, total)
    ours = padded(packed.data, packed.batch_sizes, batch_first, -1.5, total)

    assert torch.equal(ours[0], theirs[0])
    assert ours[0].stride() == theirs[0].stride()
    assert ours[1].tolist() == theirs[1].tolist() == lengths.tolist()
