"""Our wire format against google.protobuf, over the schemas of the real services."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("google.protobuf")

from tests.zoo.protocols import schemas

from modeldyno.serving.clients import kserve_grpc, tensorflow_grpc
from modeldyno.serving.clients.protobuf import Schema, decode, encode

REAL = {
    "inference.ModelInferRequest": ("kserve", kserve_grpc.REQUEST),
    "inference.ModelInferResponse": ("kserve", kserve_grpc.RESPONSE),
    "inference.ModelMetadataRequest": ("kserve", kserve_grpc.MODEL),
    "inference.ModelMetadataResponse": ("kserve", kserve_grpc.METADATA),
    "inference.ServerMetadataResponse": ("kserve", kserve_grpc.SERVER),
    "inference.ModelStatisticsRequest": ("kserve", kserve_grpc.MODEL),
    "inference.ModelStatisticsResponse": ("kserve", kserve_grpc.STATISTICS),
    "tensorflow.serving.PredictRequest": ("tensorflow", tensorflow_grpc.REQUEST),
    "tensorflow.serving.PredictResponse": ("tensorflow", tensorflow_grpc.RESPONSE),
    "tensorflow.serving.GetModelMetadataRequest": ("tensorflow", tensorflow_grpc.METADATA_REQUEST),
    "tensorflow.serving.GetModelMetadataResponse": ("tensorflow", tensorflow_grpc.METADATA),
    "tensorflow.serving.SignatureDefMap": ("tensorflow", tensorflow_grpc.SIGNATURES),
    "tensorflow.TensorProto": ("tensorflow", tensorflow_grpc.TENSOR),
}
"""Full name of a message to where its schema lies, and our table of it."""
ODD: Schema = {
    1: ("a", "uint32"), 2: ("b", "int32"), 3: ("c", "double"), 4: ("d", ["string"]), 5: ("e", "float"),
    15: ("f", "bool"), 16: ("g", ["bool"]), 2000: ("h", ["double"]), 536870911: ("i", "bytes"),
}  # fmt: skip
few = settings(max_examples=10, deadline=None)
_WORDS = {
    "string": st.text(st.characters(codec="utf-8"), max_size=8),
    "bytes": st.binary(max_size=300),
    "bool": st.booleans(),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "uint64": st.integers(0, 2**64 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
}


def values(schema: Schema) -> st.SearchStrategy[dict[str, Any]]:
    """Draw a message: every field, with its default in the place of what is absent, and one of a oneof."""
    of_oneof = [name for name, kind in schema.values() if isinstance(kind, str) and kind.endswith("?")]

    def with_one(drawn: dict[str, Any]) -> dict[str, Any]:
        set_fields = [name for name in of_oneof if drawn[name] is not None]
        return drawn | dict.fromkeys(set_fields[1:])

    return st.fixed_dictionaries({name: _values(kind) for name, kind in schema.values()}).map(with_one)


def _values(kind: Any) -> st.SearchStrategy[Any]:
    if isinstance(kind, list):
        (each,) = kind
        return st.lists(values(each) if isinstance(each, dict) else _WORDS[each], max_size=2)
    if isinstance(kind, dict):
        return st.none() | values(kind)
    return st.none() | _WORDS[kind[:-1]] if kind.endswith("?") else _WORDS[kind]


def filled(message: Any, fields: dict[str, Any]) -> Any:
    """Fill a message of google.protobuf with the same values; our maps are lists of entries."""
    for name, value in fields.items():
        if isinstance(value, dict):
            filled(getattr(message, name), value).SetInParent()
        elif isinstance(value, list):
            field = getattr(message, name)
            for item in value:
                if hasattr(field, "MergeFrom") and isinstance(item, dict) and "key" in item:
                    entry = field[item["key"]]
                    filled(entry, item["value"] or {})
                elif isinstance(item, dict):
                    filled(field.add(), item)
                else:
                    field.append(item)
        elif value is not None:
            setattr(message, name, value)
    return message


def without_twins(message_fields: Any) -> Any:
    """Leave one entry for each key: a map has no more; a value that is absent is an empty one."""
    if (
        isinstance(message_fields, list)
        and message_fields
        and isinstance(message_fields[0], dict)
        and "key" in message_fields[0]
    ):
        return list({entry["key"]: entry for entry in map(without_twins, message_fields)}.values())
    if isinstance(message_fields, list):
        return [without_twins(item) for item in message_fields]
    return (
        {name: without_twins(value) for name, value in message_fields.items()}
        if isinstance(message_fields, dict)
        else message_fields
    )


class TestAgainstGoogle:
    @pytest.mark.parametrize("name", REAL)
    @few
    @given(data=st.data())
    def test_what_we_write_is_what_google_reads(self, name: str, data: st.DataObject) -> None:
        """A message that we write is the one that google.protobuf makes of the same values."""
        where, schema = REAL[name]
        fields = without_twins(data.draw(values(schema)))
        real = schemas(where)[name]

        assert real.FromString(encode(schema, fields)) == filled(real(), fields)

    @pytest.mark.parametrize("name", REAL)
    @few
    @given(data=st.data())
    def test_what_google_writes_is_what_we_read(self, name: str, data: st.DataObject) -> None:
        """A message that google.protobuf writes is read by us as those values; unset messages are None."""
        where, schema = REAL[name]
        fields = without_twins(data.draw(values(schema)))
        real = schemas(where)[name]
        written = filled(real(), fields).SerializeToString(deterministic=True)

        assert real.FromString(encode(schema, decode(schema, written))) == real.FromString(written)

    @pytest.mark.parametrize("name", REAL)
    def test_the_tables_name_real_fields(self, name: str) -> None:
        """Every field of a table has the number, the name and the kind that the real schema gives it."""
        where, schema = REAL[name]
        _check(schema, schemas(where)[name].DESCRIPTOR)

    def test_fields_that_are_not_in_the_table_are_skipped(self) -> None:
        """Fields of every wire type that a table does not name do not disturb those that it names."""
        real = schemas("tensorflow")["tensorflow.TensorProto"]
        message = real(dtype=1, version_number=-3, scomplex_val=[1.5], float_val=[2.5], dcomplex_val=[1.0])
        message.tensor_shape.dim.add(size=2)

        assert decode({5: ("float_val", ["float"])}, message.SerializeToString()) == {"float_val": [2.5]}


_TYPES = {
    1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 8: "bool", 9: "string", 12: "bytes",
    13: "uint32", 14: "int32",
}  # fmt: skip
"""Numbers of google.protobuf's types; an enumeration is an int32 on the wire."""


def _check(schema: Schema, descriptor: Any) -> None:
    for number, (name, kind) in schema.items():
        field = descriptor.fields_by_number[number]
        assert field.name == name
        assert field.is_repeated == isinstance(kind, list)
        inner = kind[0] if isinstance(kind, list) else kind
        if isinstance(inner, dict):
            _check(inner, field.message_type)
        else:
            assert isinstance(inner, str)
            assert _TYPES[field.type] == inner.removesuffix("?")
            assert (field.containing_oneof is not None) == inner.endswith("?")


class TestWire:
    @settings(deadline=None)
    @given(values(ODD))
    def test_round_trip(self, fields: dict[str, Any]) -> None:
        """What is written is read again, whatever the numbers of its fields."""
        assert decode(ODD, encode(ODD, fields)) == fields

    def test_defaults_take_no_bytes(self) -> None:
        """What is absent or has its default is not written, and is read as its default."""
        assert encode(ODD, {"a": 0, "d": [], "f": False}) == b""
        assert decode(ODD, b"")["i"] == b""

    def test_not_a_number_is_written(self) -> None:
        """NaN, which is equal to nothing, is not taken for the default."""
        assert math.isnan(decode(ODD, encode(ODD, {"c": math.nan}))["c"])

    def test_numbers_one_by_one_are_read_like_packed_ones(self) -> None:
        """A list of numbers may be packed, or not, or both."""
        assert decode({1: ("n", ["int32"])}, b"\x08\x01\x0a\x02\x02\x03\x08\x04") == {"n": [1, 2, 3, 4]}

    def test_a_message_in_parts_is_their_union(self) -> None:
        """Where a message comes twice, fields of both hold; the last one of the same."""
        schema: Schema = {1: ("m", {1: ("a", "int32"), 2: ("b", ["int32"])})}
        parts = b"\x0a\x04\x08\x01\x10\x05" + b"\x0a\x02\x08\x02"

        assert decode(schema, parts)["m"]["a"] == 2

    def test_groups_are_skipped(self) -> None:
        """An old group, and what is in it, belongs to no field."""
        assert decode({2: ("b", "int32")}, b"\x0b\x10\x07\x0c\x10\x05") == {"b": 5}

    @pytest.mark.parametrize(
        ("schema", "data"),
        [
            (ODD, b"\x08"),
            (ODD, b"\x08" + b"\x80" * 11),
            (ODD, b"\x0f\x01"),
            (ODD, b"\x0a\x01\x01"),
            (ODD, b"\x22\x05ab"),
            (ODD, b"\x22\x02\xff\xfe"),
            (ODD, b"\x0b\x10\x07"),
            (ODD, b"\x82\x7d\x03\x00\x00\x00"),
            ({1: ("m", {})}, b"\x08\x01"),
        ],
    )
    def test_damage_is_a_value_error(self, schema: Schema, data: bytes) -> None:
        """Damage is told, whatever it is: cut short, too long, no known type, no UTF-8."""
        with pytest.raises(ValueError, match="message"):
            decode(schema, data)

    def test_depth_is_bounded(self) -> None:
        """A message within itself many times over is refused before the stack ends."""
        deep: Schema = {}
        deep[1] = ("m", deep)
        data = b""
        for _ in range(500):
            data = encode({1: ("m", "bytes")}, {"m": data or b"\x08"})
        with pytest.raises(ValueError, match="deep"):
            decode(deep, data)

    @pytest.mark.parametrize("wrong", [{"a": -1}, {"b": 2**31}, {"e": 1e300}, {"e": "x"}, {"nope": 1}])
    def test_what_does_not_fit_is_refused(self, wrong: dict[str, Any]) -> None:
        """A number beyond its kind, or a name that is no field, is refused."""
        with pytest.raises(ValueError, match=r"does not fit|has no field"):
            encode(ODD, wrong)
