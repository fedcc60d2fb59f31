"""What exporters and runtimes say, read as kinds of failure."""

from __future__ import annotations

from typing import Any

import pytest

from modeldyno.base.errors import MissingExtra, RequestError
from modeldyno.conversion.agreement.conversion import ConversionFailureKind as Kind
from modeldyno.conversion.converters import torch_program
from modeldyno.conversion.failures import failure_of


@pytest.mark.parametrize(
    ("message", "operators"),
    [
        (
            "No ONNX function found for <OpOverload(op='aten._linalg_eigh', overload='default')>.",
            ("aten._linalg_eigh",),
        ),
        (
            "Exporting the operator 'aten::fft_fft' to ONNX opset version 17 is not supported",
            ("aten::fft_fft",),
        ),
        ("Unable to find a shape calculator for type '<class 'my.Estimator'>'.", ("my.Estimator",)),
        ("NOT_IMPLEMENTED : Could not find an implementation for Bernoulli(15) node", ("Bernoulli",)),
        ("Fatal error: com.me:Mine(-1) is not a registered function/op", ("com.me:Mine",)),
        ("No conversion rule found for operations: aten::a, aten::b", ("aten::a", "aten::b")),
        ("OpenVINO does not support the following ONNX operations: org.Mine", ("org.Mine",)),
    ],
)
def test_unsupported_operators_are_named(message: str, operators: tuple[str, ...]) -> None:
    """By every exporter in its own words."""
    failure = failure_of(RuntimeError(message))

    assert (failure.kind, failure.operators) == (Kind.UNSUPPORTED_OPERATOR, operators)
    assert failure.message == f"{', '.join(operators)} is not supported"
    assert failure.advice


def test_the_cause_counts() -> None:
    """Exporters wrap what went wrong in an error of their own."""
    try:
        try:
            raise ValueError(  # noqa: TRY301 - the cause
                "No Op registered for Foo with domain_version of 9"
            )
        except ValueError as cause:
            raise RuntimeError("export failed") from cause
    except RuntimeError as error:
        failure = failure_of(error)

    assert (failure.kind, failure.operators) == (Kind.UNSUPPORTED_OPERATOR, ("Foo",))
    assert "export failed" in failure.log


def test_packed_sequences_are_named_with_what_to_do_instead() -> None:
    """An exporter asks torch for a tensor as large as one that it does not know yet."""
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.gru = torch.nn.GRU(4, 2, batch_first=True)

        def forward(self, x: Any, lengths: Any) -> Any:
            packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
            return self.gru(packed)[1]

    with torch_program.quiet(), pytest.raises(Exception, match="FakeTensor") as raised:
        torch.export.export(Net(), (torch.randn(2, 3, 4), torch.tensor([3, 2])), strict=False)
    failure = failure_of(raised.value)

    assert (failure.kind, failure.operators) == (Kind.UNSUPPORTED_OPERATOR, ("GRU",))
    assert failure.message.startswith("GRU of packed sequences cannot be exported (test_failures.py:")
    assert "torchscript" in failure.advice


def test_the_line_of_the_users_code_is_told() -> None:
    """Of the first cause, as far as a file has it."""
    try:
        try:
            len(3)  # type: ignore[arg-type]
        except TypeError as cause:
            raise RuntimeError("export failed") from cause
    except RuntimeError as error:
        failure = failure_of(error)

    assert failure.message.startswith("TypeError: object of type 'int' has no len() (test_failures.py:")


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (MemoryError(), Kind.OUT_OF_MEMORY, "memory ran out"),
        (RuntimeError("bad_alloc"), Kind.OUT_OF_MEMORY, "memory ran out"),
        (
            ValueError("Constraints violated (batch)!"),
            Kind.DYNAMIC_SHAPE,
            "ValueError: Constraints violated (batch)!",
        ),
        (RequestError("It has no method x."), Kind.ERROR, "It has no method x"),
        (KeyError("a\nb"), Kind.ERROR, "KeyError: 'a\\nb'"),
        (
            MissingExtra("It needs onnx; install it with: pip install onnx"),
            Kind.MISSING_EXTRA,
            "It needs onnx",
        ),
    ],
)
def test_other_errors_have_their_kinds(error: Exception, kind: Kind, message: str) -> None:
    """And one line of the exporter's own words."""
    failure = failure_of(error)

    assert (failure.kind, failure.message) == (kind, message)
