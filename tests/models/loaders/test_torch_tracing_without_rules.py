"""Operators of torch for which torch knows no shapes, or which take functions, cost no inspection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn
from torch._higher_order_ops import while_loop as untyped_while_loop
from torch._higher_order_ops.scan import scan

import modeldyno
from modeldyno.base.errors import RequestError
from modeldyno.models.loaders.torch_weights import list_weights

if TYPE_CHECKING:
    from collections.abc import Callable

while_loop: Any = untyped_while_loop


class Net(nn.Module):
    """A linear layer of 8 x 8, and whatever comes after it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        """Compute."""
        return self.function(self, *inputs)


def costs(function: Callable[..., Any], *inputs: Any) -> Any:
    return modeldyno.inspect(Net(function).eval(), inputs)


def test_a_padding_mask_is_analysed() -> None:
    """`nn.TransformerEncoder` counts dense: 2 layers of 4 heads on 2 x 16 tokens, and 32 x 5 at its end."""

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(1000, 64, padding_idx=0)
            layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2)
            self.head = nn.Linear(64, 5)

        def forward(self, tokens: Any) -> Any:
            hidden = self.encoder(self.embedding(tokens), src_key_padding_mask=tokens == 0)
            return self.head(hidden[:, 0])

    result = modeldyno.inspect(Classifier().eval(), torch.randint(1, 1000, (2, 16)))
    layer = 32 * (4 * 64 * 64 + 2 * 64 * 128) + 2 * 4 * 16 * 16 * (16 + 16)
    assert result["macs"] == 2 * layer + 2 * 64 * 5 == 2_228_864
    assert result.outline is not None
    assert any("nested tensors" in text for text in result.outline.assumptions)


@pytest.mark.parametrize(
    ("function", "inputs", "macs"),
    [
        (lambda net, x: torch.linalg.lstsq(net.first(x), x[..., :1]).solution, ((2, 10, 8),), 20 * 64),
        (
            lambda net, x: nn.functional.ctc_loss(
                net.first(x).log_softmax(-1),
                torch.ones(2, 3, dtype=torch.int64),
                torch.tensor([10, 10]),
                torch.tensor([3, 3]),
            ),
            ((10, 2, 8),),
            20 * 64,
        ),
        (lambda net, x: torch.linalg.eigvals(net.first(x)).abs(), ((8, 8),), 8 * 64),
    ],
    ids=["lstsq", "ctc_loss", "eigvals"],
)
def test_one_operator_without_a_rule_costs_its_own_coverage(
    function: Any, inputs: tuple[tuple[int, ...], ...], macs: int
) -> None:
    """The layers beside it are counted; the least that the model costs is theirs."""
    result = costs(function, *(torch.rand(shape) for shape in inputs))
    assert result["macs"] >= macs
    assert min(result["macs"], macs) == macs


@pytest.mark.parametrize(
    ("function", "macs"),
    [
        # the flag depends on values and is taken as false: two products of 2 x 8 x 8
        (
            lambda net, x: torch.cond(x.sum() > 0, net.first, lambda x: net.second(net.second(x)), (x,)),
            2 * 2 * 64,
        ),
        # three rounds, which follow from a constant
        (
            lambda net, x: while_loop(
                lambda i, _: i < 3, lambda i, x: (i + 1, net.first(x)), (torch.tensor(0), x)
            )[1],
            3 * 2 * 64,
        ),
        # as many rounds as the values want: one is counted
        (
            lambda net, x: while_loop(lambda x: x.sum() < 3, lambda x: (net.first(x),), (x,))[0],
            2 * 64,
        ),
    ],
    ids=["cond", "while_loop", "while_loop of values"],
)
def test_operators_that_take_functions_are_followed(function: Any, macs: int) -> None:
    """Conditions and loops are those of the program."""
    assert costs(function, torch.rand(2, 8))["macs"] == macs


def test_a_scan_is_unrolled() -> None:
    """Each of the five rows takes its product of 8 x 8, and the results are stacked."""

    def run(net: Net, x: Any) -> Any:
        return scan(lambda state, row: (state + net.first(row), state + 1), torch.zeros(8), x, dim=0)[1]

    assert costs(run, torch.rand(5, 8))["macs"] == 5 * 64


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor", "ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("layer", "weights"),
    [
        (lambda: nn.LSTM(8, 16, batch_first=True), 4 * 16 * (8 + 16) + 2 * 64),
        (lambda: nn.LSTM(8, 16, num_layers=2, bidirectional=True), None),
        (lambda: nn.GRU(8, 16), 3 * 16 * (8 + 16) + 2 * 48),
        (lambda: nn.LSTMCell(8, 16), 4 * 16 * (8 + 16) + 2 * 64),
    ],
    ids=["lstm", "deep lstm", "gru", "cell"],
)
def test_dynamically_quantised_recurrences_keep_their_parameters(layer: Any, weights: int | None) -> None:
    """They are packed into objects of C++; as many as before are found."""
    plain = nn.Sequential(layer()).eval()
    expected = sum(parameter.numel() for parameter in plain.parameters())
    assert weights in {None, expected}
    kinds = {nn.LSTM, nn.GRU, nn.LSTMCell}
    quantised = torch.ao.quantization.quantize_dynamic(plain, kinds, dtype=torch.qint8)
    assert sum(weight.size for weight in list_weights(quantised)) == expected


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("make", "form"),
    [
        (lambda: torch.eye(8).to_sparse(), r"sparse \(sparse_coo\)"),
        (lambda: torch.eye(8).to_sparse_csr(), r"sparse \(sparse_csr\)"),
        (lambda: torch.nested.nested_tensor([torch.ones(2, 8), torch.ones(3, 8)]), "a nested tensor"),
        (lambda: torch.quantize_per_tensor(torch.ones(2, 8), 0.1, 0, torch.qint8), r"quantised \(qint8\)"),
    ],
    ids=["coo", "csr", "nested", "quantised"],
)
def test_an_example_that_no_array_can_hold_is_named(make: Any, form: str) -> None:
    """The sentence has its form, and what to give instead."""
    with pytest.raises(RequestError, match=f"is {form}, which cannot be fed; give dense tensors"):
        modeldyno.inspect(Net(lambda net, x: net.first(x)), make())
