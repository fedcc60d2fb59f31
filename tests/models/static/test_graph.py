from __future__ import annotations

import pytest

from modeldyno.models.static.graph import Op, Tensor, bits_per_element


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("float32", 32), ("bfloat16", 16), ("float8_e4m3fn", 8), ("int4", 4), ("bool", 8), ("complex64", 64),
     ("quint4x2", 4), ("string", 0), ("unheard_of", 32)],
)  # fmt: skip
def test_dtypes_have_bits(dtype: str, size: int) -> None:
    """The digits of a name tell the bits of an element, but for a few; the unknown count as float32."""
    assert bits_per_element(dtype) == size


def test_an_expanded_tensor_is_read_once() -> None:
    """What is stored tells the bytes, not the shape; several small elements share a byte."""
    assert Tensor((4, 6), "float32").bytes == 96
    assert Tensor((4, 6), "float32", stored=6).bytes == 24
    assert Tensor((4,), "float32", 0) != Tensor((4,), "float32", 0, offset=4)
    assert Tensor((3,), "int4").bytes == 2


def test_only_tensors_are_given_as_tensors() -> None:
    """Tensors are found among the arguments, in lists too; anything else by that name is a KeyError."""
    first, second = Tensor((2,), "float32"), Tensor((3,), "float32")
    op = Op("aten.cat", {"tensors": [first, second], "dim": 0, "out": first}, (second,))

    assert list(op.tensors()) == [first, second, first]
    assert op.tensor("out") is first
    with pytest.raises(KeyError):
        op.tensor("dim")
