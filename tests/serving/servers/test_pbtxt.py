"""Text protobuf as Triton reads it: against the schema of its client, and the parser of protobuf."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf import json_format, text_format
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import model_config_pb2

from modeldyno.base.errors import RequestError
from modeldyno.serving.servers import triton_schema
from modeldyno.serving.servers.pbtxt import parse_pbtxt, to_pbtxt
from modeldyno.serving.servers.triton_schema import ENUM, NUMBER, TEXT, Field

if TYPE_CHECKING:
    from collections.abc import Callable

BASE = {
    "name": "m",
    "max_batch_size": 8,
    "instance_group": [{"count": 1, "kind": "KIND_CPU"}],
    "parameters": {"threads": {"string_value": "2"}},
}


def test_the_text_of_a_configuration() -> None:
    """Words of Triton have no quotation marks, text has; messages repeat, numbers stand in a list."""
    assert to_pbtxt({**BASE, "dynamic_batching": {"preferred_batch_size": [4, 8]}}) == (
        'name: "m"\n'
        "max_batch_size: 8\n"
        "instance_group {\n"
        "  count: 1\n"
        "  kind: KIND_CPU\n"
        "}\n"
        "parameters {\n"
        '  key: "threads"\n'
        "  value {\n"
        '    string_value: "2"\n'
        "  }\n"
        "}\n"
        "dynamic_batching {\n"
        "  preferred_batch_size: [4, 8]\n"
        "}\n"
    )


@pytest.mark.parametrize(
    ("config", "written"),
    [
        ({"a": True, "b": False, "c": None}, "a: true\nb: false\n"),
        ({"a": 0.5}, "a: 0.5\n"),
        ({"a": 'say "hi"\\\n'}, 'a: "say \\"hi\\"\\\\\\n"\n'),
        ({"a": "é"}, 'a: "\\303\\251"\n'),
        ({"dynamic_batching": {}}, "dynamic_batching {\n}\n"),
        (
            {"input": [], "version_policy": {"specific": {"versions": []}}},
            "version_policy {\n  specific {\n  }\n}\n",
        ),
        ({"optimization": {"priority": "not a word"}}, 'optimization {\n  priority: "not a word"\n}\n'),
        ({"metric_tags": {"1": 2}}, 'metric_tags {\n  key: "1"\n  value: "2"\n}\n'),
        ({"max_batch_size": "8"}, "max_batch_size: 8\n"),
    ],
)
def test_values_are_written_as_text_protobuf(config: dict[str, object], written: str) -> None:
    """Every kind of value has its form."""
    assert to_pbtxt(config) == written


def theirs(field: Any) -> Field:
    """What Triton's schema says of a field, in the words of ours, but with its names of messages."""
    entry = field.message_type if field.message_type and field.message_type.GetOptions().map_entry else None
    value = entry.fields_by_name["value"] if entry else field
    holds = (
        value.message_type.full_name
        if value.message_type
        else ENUM
        if value.enum_type
        else TEXT
        if value.cpp_type == value.CPPTYPE_STRING
        else NUMBER
    )
    if entry is None:
        return Field(holds, repeated=field.is_repeated)
    text_key = entry.fields_by_name["key"].cpp_type == field.CPPTYPE_STRING
    return Field(holds, key=TEXT if text_key else NUMBER)


def test_the_schema_is_that_of_triton() -> None:
    """Every field of every message is known, and holds what Triton's does; no row is left over."""
    waiting, reached = [("ModelConfig", model_config_pb2.ModelConfig.DESCRIPTOR)], {}
    while waiting:
        name, message = waiting.pop()
        if (name, message.full_name) in reached:
            continue
        reached[name, message.full_name] = {field.name for field in message.fields}
        for field in message.fields:
            own, right = triton_schema.MESSAGES[name][field.name], theirs(field)
            where = f"{message.full_name}.{field.name}"
            assert (own.repeated, own.key, own.is_plain) == (right.repeated, right.key, right.is_plain), where
            if own.is_plain:
                assert own.holds == right.holds, where
            else:
                value = field.message_type.fields_by_name["value"] if own.key else field
                waiting.append((own.holds, value.message_type))

    assert {name for name, _ in reached} == set(triton_schema.MESSAGES)
    for name, fields in triton_schema.MESSAGES.items():
        assert set(fields) == set().union(*(known for (row, _), known in reached.items() if row == name))


TEXTS = st.sampled_from(
    ["308", "true", "1e3", "-1", "KIND_CPU", "a.b", 'say "hi"', "é\n\t\\", "", "{}", "'#"]
)


@st.composite
def messages(draw: Callable[..., Any], message: Any = None, depth: int = 4) -> Any:
    """A configuration with some fields of each kind, as Triton's own class."""
    message = model_config_pb2.ModelConfig() if message is None else message
    fields = st.lists(
        st.sampled_from(list(message.DESCRIPTOR.fields)), max_size=4, unique_by=lambda each: each.name
    )
    for field in draw(fields) if depth and message.DESCRIPTOR.fields else ():
        target = getattr(message, field.name)
        if field.message_type and field.message_type.GetOptions().map_entry:
            key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
            for entry in draw(st.lists(scalars(key), max_size=2)):
                if value.message_type:
                    draw(messages(target[entry], depth - 1))
                else:
                    target[entry] = draw(scalars(value))
        elif field.message_type:
            target.SetInParent() if not field.is_repeated else None
            for part in [target.add() for _ in range(2)] if field.is_repeated else [target]:
                draw(messages(part, depth - 1))
        elif field.is_repeated:
            target.extend(draw(st.lists(scalars(field), max_size=3)))
        else:
            setattr(message, field.name, draw(scalars(field)))
    return message


def scalars(field: Any) -> Any:
    """Values of a field that has no fields."""
    if field.enum_type:
        return st.sampled_from([value.number for value in field.enum_type.values])
    if field.cpp_type == field.CPPTYPE_STRING:
        return TEXTS
    if field.cpp_type == field.CPPTYPE_BOOL:
        return st.booleans()
    if field.cpp_type in {field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE}:
        return st.sampled_from([0.5, 1e-7, 1e10, -3.0])
    return st.sampled_from([0, 1, 7, 2**31 - 1])


@given(message=messages())
def test_what_triton_means_is_read_and_written(message: Any) -> None:
    """Any configuration is read as its JSON, and what is written of it is the same to Triton."""
    config = parse_pbtxt(text_format.MessageToString(message))

    assert json_format.ParseDict(config, model_config_pb2.ModelConfig()) == message
    assert text_format.Parse(to_pbtxt(config), model_config_pb2.ModelConfig()) == message
    from_json = json_format.MessageToDict(message, preserving_proto_field_name=True)
    assert text_format.Parse(to_pbtxt(from_json), model_config_pb2.ModelConfig()) == message


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing",
        'name: "a" \'b\' # two\n"c"',
        r'name: "\101\x41\u0041\U00000041\t\a\""',
        "max_batch_size: 010",
        "max_batch_size: 0x10;",
        "max_batch_size: -1,",
        "input { dims: -1 dims: [ 2, 3 ] } input: < name: 'x' >",
        "input [ { name: 'x' }, { name: 'y' } ]",
        "input []",
        "optimization { cuda { graph_spec { input { key: '1' value { dim: 2 } } } } }",
        "model_metrics { metric_control { histogram_options { buckets: [0.1, 1f, 1e3] } } }",
        "metric_tags { key: 'a' } metric_tags { value: 'b' } parameters { key: 'p' }",
        "dynamic_batching { priority_queue_policy { key: 2 value { timeout_action: DELAY } } }",
        "instance_group { kind: KIND_CPU host_policy: 'h' profile: '1' }",
        "response_cache { enable: true }",
        # refused by both
        "name: 308",
        "name: m",
        "ensemble_scheduling { step { output_map { key: 308 value: 'TEXT' } } }",
        "max_batch_size: '8'",
        "max_batch_size 8",
        "max_batch_size: 8 max_batch_size: 9",
        "input { dims: [ 1 2 ] }",
        "input { dims: [ 1, ] }",
        "input { name: 'x'",
        "name: 'x",
        "instance_group { kind: 'KIND_CPU' }",
        "max_batch_size: { }",
        "name: [ 'a'",
        "}",
        "$",
        ": 1",
        "name:",
    ],
)
def test_a_text_is_taken_as_protobuf_takes_it(text: str) -> None:
    """What Triton reads is read as it does, and what it refuses is refused."""
    try:
        right = text_format.Parse(text, model_config_pb2.ModelConfig())
    except text_format.ParseError:
        with pytest.raises(RequestError, match=r"line 1"):
            parse_pbtxt(text)
    else:
        assert json_format.ParseDict(parse_pbtxt(text), model_config_pb2.ModelConfig()) == right


def test_fields_of_a_newer_triton_are_kept_as_they_look() -> None:
    """Words stay words, text stays text, and what is given twice is a list."""
    text = 'new: WORD\nother: "WORD"\nflag: true\nmany: [1, 2, 3]\nmore {\n  key: 308\n  x: -0.5\n}\n'

    assert to_pbtxt(parse_pbtxt(text)) == text
    assert to_pbtxt(parse_pbtxt("new: 1 new: 2 in { a: A } in { a: 'A' }")) == (
        'new: [1, 2]\nin {\n  a: A\n}\nin {\n  a: "A"\n}\n'
    )


def test_the_line_of_a_mistake_is_told() -> None:
    """A reader finds it."""
    with pytest.raises(RequestError, match=r"line 3: 'key' takes text in quotation marks, not 308"):
        parse_pbtxt("name: 'e'\nensemble_scheduling { step {\n output_map { key: 308 value: 'T' } } }")
    with pytest.raises(RequestError, match=r"line 2: expected ':' after 'dims', not '3'"):
        parse_pbtxt("input {\n dims 3 }")
