from __future__ import annotations

import pytest

from modeldyno.engine.environment.nvidia import Card, visible_devices


def card(index: int, uuid: str, *parts: str, name: str = "T") -> Card:
    return Card(index=index, name=name, uuid=uuid, parts=parts)


TWO = (card(0, "GPU-aaaa-1"), card(1, "GPU-abbb-2"))
MIXED = (card(0, "GPU-aaaa-1", name="fast"), card(1, "GPU-abbb-2", name="slow"))
DIVIDED = (card(0, "GPU-aaaa-1"), card(1, "GPU-abbb-2", "MIG-b1", "MIG-b2"))


def visible_cards(cards: tuple[Card, ...], listed: str | None, **environ: str) -> dict[str, str]:
    variables = environ if listed is None else {**environ, "CUDA_VISIBLE_DEVICES": listed}
    return {name: one.part or one.card.uuid for name, one in visible_devices(cards, variables).items()}


class TestVisible:
    @pytest.mark.parametrize(
        ("listed", "expected"),
        [
            (None, ["GPU-aaaa-1", "GPU-abbb-2"]),
            ("1,0", ["GPU-abbb-2", "GPU-aaaa-1"]),
            (" 1 ", ["GPU-abbb-2"]),
            ("0,-1,1", ["GPU-aaaa-1"]),
            ("0,7,1", ["GPU-aaaa-1"]),
            ("", []),
            ("GPU-abbb-2", ["GPU-abbb-2"]),
            ("GPU-ab,GPU-aa", ["GPU-abbb-2", "GPU-aaaa-1"]),
            ("GPU-a", []),
            ("nothing", []),
        ],
    )
    def test_the_list_is_read_as_cuda_reads_it(self, listed: str | None, expected: list[str]) -> None:
        """Indices, and beginnings of UUIDs that mean one card, up to the first that is none."""
        assert list(visible_cards(TWO, listed).values()) == expected

    def test_devices_are_named_by_their_place_in_the_list(self) -> None:
        """What CUDA calls 0 is the first of the list, whatever the driver calls it."""
        assert visible_cards(TWO, "1,0") == {"cuda:0": "GPU-abbb-2", "cuda:1": "GPU-aaaa-1"}

    @pytest.mark.parametrize("listed", [None, "0", "1,0"])
    def test_indices_of_unlike_cards_mean_nothing(self, listed: str | None) -> None:
        """CUDA sorts by speed unless it is told otherwise, so all are watched by the driver's numbers."""
        assert visible_cards(MIXED, listed) == {"gpu:0": "GPU-aaaa-1", "gpu:1": "GPU-abbb-2"}

    def test_unlike_cards_in_the_order_of_the_bus_are_certain(self) -> None:
        """CUDA_DEVICE_ORDER=PCI_BUS_ID is the driver's order."""
        assert visible_cards(MIXED, "1", CUDA_DEVICE_ORDER="PCI_BUS_ID") == {"cuda:0": "GPU-abbb-2"}

    def test_unlike_cards_by_uuid_are_certain(self) -> None:
        """A UUID needs no order."""
        assert visible_cards(MIXED, "GPU-abbb-2") == {"cuda:0": "GPU-abbb-2"}

    @pytest.mark.parametrize(
        ("listed", "expected"),
        [("MIG-b2", ["MIG-b2"]), ("MIG-b", []), ("1", ["MIG-b1"]), ("GPU-ab", ["MIG-b1"]), ("MIG-c", [])],
    )
    def test_a_divided_card_is_its_instances(self, listed: str, expected: list[str]) -> None:
        """An instance goes by its UUID; of a divided card CUDA takes the first one."""
        assert list(visible_cards(DIVIDED, listed).values()) == expected
