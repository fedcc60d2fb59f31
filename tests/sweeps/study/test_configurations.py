"""Configurations of a study have names, and several models have one ranking."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.sample_trials import a_trial, add_trials, an_answer

from modeldyno.base.errors import RequestError
from modeldyno.sweeps.study.goal import Goal, Objective
from modeldyno.sweeps.study.ranking import find_configuration, rank_models, ranking
from modeldyno.sweeps.study.study import base_name, configuration_label, configuration_number
from modeldyno.testing.sample_studies import a_served_study, a_study

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modeldyno.base.job.knob import KnobValue
    from modeldyno.sweeps.study.study import Study, Trial


def served(*, name: str = "text", faster: float = 1.0) -> Study:
    """Return a study of three configurations under two loads."""
    study = a_served_study("instances=1,2,3", "concurrency=1,4", default={"instances": 1}, name=name)
    points = [{"instances": i, "concurrency": c} for c in (1, 4) for i in (1, 3, 2)]
    rates = [faster * 10.0 * point["instances"] * point["concurrency"] for point in points]
    return add_trials(study, map(trial, points, rates))


def trial(point: Mapping[str, KnobValue], rate: float = 1.0) -> Trial:
    """Return a trial with a throughput."""
    return a_trial(point, an_answer("throughput", rate))


def test_a_configuration_is_numbered_by_its_first_measurement() -> None:
    """All its loads have one number; the default has none; more trials change no number."""
    study = served()
    more = add_trials(study, [trial({"instances": 9, "concurrency": 1})])

    assert configuration_label(study, {"instances": 3, "concurrency": 4}) == "text_1"
    assert configuration_label(study, {"instances": 2, "concurrency": 1}) == "text_2"
    assert configuration_label(study, {"instances": 1}) == "text_default"
    assert configuration_label(study, {"instances": 7}) == ""
    assert configuration_number(more, {"instances": 2}) == "2"
    assert configuration_number(more, {"instances": 9}) == "3"


def test_a_row_knows_its_configuration() -> None:
    """The ranking names each row, for tables and for programs."""
    assert [row.configuration for row in ranking(served()).rows] == ["text_1", "text_2", "text_default"]


@pytest.mark.parametrize("name", ["1", "#1", "text_1", "text_config_1", " text_1 "])
def test_a_configuration_is_found_by_any_of_its_names(name: str) -> None:
    """By its number, by its name, and by the name that Model Analyzer gives."""
    study = served()

    assert find_configuration(study, ranking(study), name).point == {"instances": 3, "concurrency": 4}


def test_an_unknown_configuration_is_answered_with_the_known_ones() -> None:
    """At most eight are named."""
    study = served()
    many = add_trials(study, (trial({"instances": 10 + i}) for i in range(9)))

    with pytest.raises(RequestError, match="no configuration 'text_9'; it has text_default, text_1, text_2"):
        find_configuration(study, ranking(study), "text_9")
    with pytest.raises(RequestError, match="no configuration 'other_1'"):
        find_configuration(study, ranking(study), "other_1")
    with pytest.raises(RequestError, match="no configuration 'x'"):
        find_configuration(study, ranking(study), "x")
    with pytest.raises(RequestError, match="text_7 and 4 more"):
        find_configuration(many, ranking(many), "99")


def test_the_name_of_a_model_is_a_directory_name() -> None:
    """Of a reference without a name, its last part."""
    study = a_study(name="")

    assert base_name(replace(study, name="a b")) == "a-b"
    assert base_name(replace(study, name="models/#text")) == "text"
    assert base_name(replace(study, name="..")) == "model"


def test_several_models_are_ranked_together() -> None:
    """The best of all comes first, whatever its study; a row knows both."""
    slow, fast = served(name="slow"), served(name="fast", faster=1.7)
    rows = rank_models([slow, fast], top=3)

    assert [(place.rank, place.row.configuration) for place in rows] == [
        (1, "fast_1"), (2, "fast_2"), (3, "slow_1"),
    ]  # fmt: skip
    assert rows[2].study is slow
    assert len(rank_models([slow, fast])) == 6


def test_a_model_has_the_share_in_which_it_is_the_best_of_all() -> None:
    """Two alike share it, one that is much faster has all of it, and studies of one seed are drawn apart."""
    alike = rank_models([served(name="a"), served(name="b")])
    shares = {name: sum(row.share for row in alike if row.study.name == name) for name in "ab"}
    assert sum(shares.values()) == pytest.approx(1)
    assert min(shares.values()) > 0.3

    apart = rank_models([served(name="slow"), served(name="fast", faster=1.7)])
    assert apart[0].share == pytest.approx(sum(row.share for row in apart), abs=0.3)
    assert sum(row.share for row in apart if row.study.name == "slow") == pytest.approx(0, abs=0.01)


def test_only_models_of_one_goal_are_ranked_together() -> None:
    """Different objectives have no common order; studies without a feasible row have none either."""
    other = replace(served(), goal=Goal(objectives=(Objective.parse("latency.p99"),)))

    with pytest.raises(RequestError, match=r"'maximize throughput' and 'minimize latency.p99'"):
        rank_models([served(), other])
    assert rank_models([a_study()]) == ()
