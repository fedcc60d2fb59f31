from __future__ import annotations

from modeldyno.engine.environment.nvidia import Card
from modeldyno.engine.environment.nvidia_smi import parse_cards, parse_number, split_fields

LISTED = """\
GPU 0: NVIDIA T (UUID: GPU-aaaa-1)
GPU 1: NVIDIA T (UUID: GPU-abbb-2)
  MIG 1g.5gb     Device  0: (UUID: MIG-b1)
  MIG 1g.5gb     Device  1: (UUID: MIG-b2)
"""


def test_instances_belong_to_the_card_above_them() -> None:
    """The list is indented, and a card that is not divided has no instances."""
    assert parse_cards(LISTED) == [
        Card(index=0, name="NVIDIA T", uuid="GPU-aaaa-1"),
        Card(index=1, name="NVIDIA T", uuid="GPU-abbb-2", parts=("MIG-b1", "MIG-b2")),
    ]


def test_a_line_of_another_length_is_none() -> None:
    """An error between the lines is no reading."""
    assert split_fields("a, b", 2) == ["a", "b"]
    assert split_fields("Unable to determine the device handle", 2) == ["", ""]


def test_words_are_no_numbers() -> None:
    """Whatever nvidia-smi writes where it has no number is none."""
    texts = ("[N/A]", "[Not Supported]", "[Unknown Error]", "N/A", "", "0xZZ")

    assert [parse_number(text, 1.0) for text in texts] == [None] * 6
    assert parse_number("0x10", 2.0) == 32
