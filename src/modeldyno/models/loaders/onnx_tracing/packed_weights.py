"""How many weights a tensor holds that ONNX Runtime packs into bytes: 2 to 8 bits each, in padded blocks.

Layouts are those of ContribOperators.md in github.com/microsoft/onnxruntime. Where an operator says the sizes
of its matrix they decide, as the bytes may be padded; else each byte holds 8 / bits weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

from modeldyno.models.flops.onnx_attention import expert_weights_per_byte

BYTES = frozenset({"int8", "uint8"})
"""Dtypes of packed weights; with another, such as int4, each element is one weight."""

_Shape = tuple[int, ...]


class PackedOperand(NamedTuple):
    """An operand of packed weights, and what its size may follow from."""

    name: str
    """Formal name."""
    attributes: Mapping[str, Any]
    """Of its operator."""
    shapes: Mapping[str, _Shape]
    """Shapes of the operands, by formal name, where the file declares them."""
    numbers: Mapping[str, _Shape]
    """Their elements, where they are a few integers in the file."""


class Packing(NamedTuple):
    """How many weights a packed tensor holds."""

    elements: int | None
    """In all; None where it follows from the bytes."""
    per_byte: Fraction = Fraction(1)

    def size(self, stored: int) -> int:
        """Return the number of weights in so many bytes; an omitted tensor, of none, has none."""
        if self.elements is None:
            return int(stored * self.per_byte)
        return self.elements if stored else 0


def find_packing(kind: str, operand: PackedOperand) -> Packing | None:
    """Return the packing of an operand of an operator of ONNX Runtime; None if it holds one weight each."""
    rule = _RULES.get((kind, operand.name))
    if rule is None:
        return None
    try:
        return Packing(*rule(operand))
    except (
        KeyError,
        IndexError,
        ZeroDivisionError,
    ):  # a function of the file, which gets its attributes later
        return Packing(None, Fraction(8, _bits(operand)))


_Rule = Callable[[PackedOperand], tuple[int | None, Fraction]]


def _bits(operand: PackedOperand) -> int:
    return max(1, int(operand.attributes.get("bits", _USUAL_BITS)))


_USUAL_BITS = 4


def _matrix(operand: PackedOperand, *, columns: str = "N") -> tuple[int, Fraction]:
    """K x N weights, in blocks along K that may be padded."""
    return operand.attributes["K"] * operand.attributes[columns], Fraction(1)


def _per_byte(operand: PackedOperand) -> tuple[None, Fraction]:
    return None, Fraction(8, _bits(operand))


def _two_per_byte(_: PackedOperand) -> tuple[None, Fraction]:
    return None, Fraction(2)


def _expert(operand: PackedOperand) -> tuple[None, Fraction]:
    return None, expert_weights_per_byte(operand.attributes, operand.name)


def _blob(operand: PackedOperand) -> tuple[int, Fraction]:
    """A matrix whose two sizes are an input, as its bytes hold scales too."""
    rows, columns = operand.numbers["B_shape"]
    return rows * columns, Fraction(1)


def _adapter_down(operand: PackedOperand) -> tuple[int, Fraction]:
    return operand.shapes["lora_A"][0] * operand.attributes["K"], Fraction(1)


def _adapter_up(operand: PackedOperand) -> tuple[int, Fraction]:
    return operand.shapes["lora_A"][0] * operand.attributes["N"], Fraction(1)


def _packed_table(operand: PackedOperand) -> tuple[int, Fraction]:
    return operand.shapes["data"][0] * operand.attributes["K"], Fraction(1)


def _packed_expert(operand: PackedOperand) -> tuple[int, Fraction]:
    """Gate and up are (experts, inner, packed hidden), down is (experts, hidden, packed inner)."""
    experts, inner, _ = operand.shapes["gate_experts_weights"]
    return experts * inner * operand.shapes["down_experts_weights"][1], Fraction(1)


_RULES: dict[tuple[str, str], _Rule] = {
    **{(kind, "B"): _matrix for kind in ("MatMulNBits", "MatMulBnb4", "MatMulPacked")},
    ("MatMulFpQ4", "B"): _blob,
    **{("MatMulNBitsMlp", f"{part}_B"): _matrix for part in ("gate", "up")},
    ("MatMulNBitsQkv", "q_B"): partial(_matrix, columns="Nq"),
    **{("MatMulNBitsQkv", f"{part}_B"): partial(_matrix, columns="Nkv") for part in "kv"},
    ("MatMulNBitsQLoRA", "W"): _matrix,
    ("MatMulNBitsQLoRA", "lora_A"): _adapter_down,
    ("MatMulNBitsQLoRA", "lora_B"): _adapter_up,
    ("MatMulBlockQuantizedFp4Weight", "B"): _two_per_byte,
    ("GatherBlockQuantized", "data"): _per_byte,
    ("GatherPacked", "data"): _packed_table,
    **{("QMoE", f"fc{number}_experts_weights"): _expert for number in (1, 2, 3)},
    **{("MoEPacked", f"{part}_experts_weights"): _packed_expert for part in ("gate", "up", "down")},
}
"""By operator and formal name of the operand."""
