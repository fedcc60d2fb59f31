from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.sample_registry import a_figure, a_task, a_version

from modeldyno.base.metrics.doubt import CODES, Doubt
from modeldyno.registry.records.staleness import FORBIDDING, PROTOCOL, forbidding_doubts, stale_because

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modeldyno.registry.records.records import Fact

NOW = datetime(2026, 1, 3, tzinfo=UTC)
DAY = 86400.0
NAMED: dict[str, Fact] = {
    "onnxruntime": "1.18.0",
    "torch": "2.5.1",
    "openvino": "2025.1.0",
    "nvidia_driver": "550.54.14",
    "tensorrt": "10.4.0",
}
UNRELATED: dict[str, Fact] = {
    "rich": "13.7.0",
    "requests": "2.32.3",
    "click": "8.1.7",
    "pandas": "2.2.2",
    "pip": "24.0",
}
FIGURE = a_figure(a_task(a_version()), software=NAMED)


def why(software: Mapping[str, Fact], max_age: float = 30 * DAY, **changes: Any) -> str | None:
    """Ask whether the sample figure holds."""
    figure = a_figure(a_task(a_version()), **{"software": NAMED, **changes})
    return stale_because(figure, software, now=NOW, max_age=max_age)


class TestSoftware:
    def test_an_unchanged_machine_keeps_its_figures(self) -> None:
        """As long as they are young enough."""
        assert why({**NAMED, **UNRELATED}) is None

    @pytest.mark.parametrize("seed", range(50))
    def test_each_change_of_a_driver_or_runtime_is_found(self, seed: int) -> None:
        """Fifty random changes of a version or absences of a package: the package is named in each reason."""
        chance = random.Random(seed)
        package = chance.choice(sorted(NAMED))
        now = {**NAMED, **UNRELATED}
        if chance.random() < 0.2:
            del now[package]
        else:
            now[package] = f"{chance.randrange(1, 99)}.{chance.randrange(99)}.post{seed}"
        reason = why(now)

        assert reason is not None
        assert f"{package} {NAMED[package]} -> {now.get(package, 'none')}" in reason

    @pytest.mark.parametrize("seed", range(50))
    def test_no_unrelated_upgrade_is_taken_for_one(self, seed: int) -> None:
        """Fifty random upgrades, removals and new packages that the backend does not name."""
        chance = random.Random(seed)
        now = {**NAMED, **UNRELATED}
        for package in chance.sample(sorted(UNRELATED), 3):
            now[package] = f"{chance.randrange(99)}.{seed}"
        now.pop(chance.choice(sorted(UNRELATED)))
        now[f"new-{seed}"] = "1.0"

        assert why(now) is None

    def test_all_that_changed_is_told(self) -> None:
        """In one sentence."""
        reason = why({**NAMED, "torch": "2.6.0", "openvino": "2025.2.0"})
        assert reason == "measured with other software: torch 2.5.1 -> 2.6.0, openvino 2025.1.0 -> 2025.2.0"


class TestRulesAndAge:
    def test_other_rules_make_it_stale(self) -> None:
        """Older and newer ones."""
        assert (
            why(NAMED, protocol=PROTOCOL + 1)
            == f"measured by other rules: protocol {PROTOCOL + 1}, now {PROTOCOL}"
        )
        assert why(NAMED, protocol=PROTOCOL - 1) is not None

    @pytest.mark.parametrize(
        ("age", "sentence"),
        [
            (timedelta(seconds=45), "45"),
            (timedelta(hours=5), "5 h"),
            (timedelta(hours=71), "71 h"),
            (timedelta(days=40), "40 days"),
        ],
    )
    def test_a_figure_that_is_too_old_says_how_old(self, age: timedelta, sentence: str) -> None:
        """In seconds, hours or days."""
        reason = why(NAMED, max_age=10.0, taken=(NOW - age).isoformat())

        assert reason is not None
        assert sentence in reason.partition(",")[0]
        assert reason.endswith("and the policy allows 10 s")

    def test_the_greatest_age_is_allowed(self) -> None:
        """To the second."""
        assert why(NAMED, max_age=DAY, taken=(NOW - timedelta(days=1)).isoformat()) is None

    def test_zones_are_compared_as_times(self) -> None:
        """A time of another zone is the same time."""
        taken = (NOW - timedelta(hours=1)).astimezone(timezone(timedelta(hours=9))).isoformat()
        assert why(NAMED, max_age=3700.0, taken=taken) is None
        assert why(NAMED, max_age=3500.0, taken=taken) is not None

    def test_software_is_told_before_rules_and_age(self) -> None:
        """The first reason suffices."""
        reason = why({}, max_age=0.0, protocol=0)
        assert reason is not None
        assert reason.startswith("measured with other software")


class TestDoubts:
    def test_a_doubt_that_others_were_there_forbids_the_claim(self) -> None:
        """Of several doubts, those are returned that forbid it."""
        doubts = [Doubt(code=code, seen="", advice="") for code in ("few-samples", "interference", "steal")]
        assert [doubt.code for doubt in forbidding_doubts(doubts)] == ["interference", "steal"]

    def test_a_doubt_about_the_number_of_samples_does_not(self) -> None:
        """Its interval tells it."""
        assert forbidding_doubts([Doubt(code="few-samples", seen="", advice="")]) == ()

    def test_every_forbidding_code_can_be_raised(self) -> None:
        """Each is in the table of doubts."""
        assert set(CODES) >= FORBIDDING
