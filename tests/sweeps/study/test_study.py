"""A study as a log: what is derived from its trials."""

from __future__ import annotations

from dataclasses import replace

from tests.support.sample_trials import a_trial, add_trials, an_answer

from modeldyno.base.metrics.constraints import Verdict
from modeldyno.base.metrics.doubt import Doubt
from modeldyno.base.metrics.metric import Query
from modeldyno.sweeps.study.search_space import Point, key
from modeldyno.sweeps.study.study import Trial, TrialPurpose, TrialRequest, TrialState
from modeldyno.testing.sample_results import a_failed_result, a_result
from modeldyno.testing.sample_studies import a_study

ONE: Point = {"batch_size": 1}
TWO: Point = {"batch_size": 2}
THREE: Point = {"batch_size": 3}
ASK = TrialRequest(point=ONE, stage=TrialPurpose.VERIFY, care=2.0)


class TestTrial:
    def test_it_keeps_what_a_comparison_needs(self) -> None:
        """Answers, verdicts, codes of doubts and the id of the Result; the samples are not kept."""
        doubts = (Doubt(code="steal", seen="", advice=""),) * 2
        trial = Trial.of(a_result(doubts=doubts), a_study().goal, ASK, number=3, seconds=1.5)
        rate = trial.ask(Query.parse("throughput"))

        assert rate is not None
        assert rate.value == 6200.5
        assert [judgement.verdict for judgement in trial.judgements] == [Verdict.UNDECIDED]
        assert trial.doubts == ("steal",)
        assert (trial.number, trial.point, trial.stage, trial.care) == (3, ONE, TrialPurpose.VERIFY, 2.0)
        assert (trial.state, trial.failure, trial.kind) == (TrialState.DONE, "", "")
        assert (trial.result, trial.seconds, trial.measured) == ("0123456789ab", 1.5, True)

    def test_each_question_is_answered_once(self) -> None:
        """Though the goal asks what is usual as well; of a percentile the plain quantile is kept, too."""
        trial = Trial.of(a_result(), a_study().goal, ASK, number=1, seconds=1.0)
        queries = [str(answer.query) for answer in trial.answers]

        assert len(queries) == len(set(queries))
        assert queries.count("latency.p99") == queries.count("latency.p99.raw") == 1
        assert trial.ask(Query.parse("energy")) is None

    def test_a_failure_is_told(self) -> None:
        """Where it happened, and of which kind."""
        trial = Trial.of(a_failed_result(), a_study().goal, ASK, number=1, seconds=1.0)

        assert trial.state is TrialState.FAILED
        assert trial.failure == "load: The child took 2 GiB."
        assert trial.failed_stage == "load"
        assert trial.kind == "oom"
        assert trial.measured


class TestStudy:
    def test_a_trial_more_is_another_study(self) -> None:
        """What was there stays as it was."""
        study = a_study()
        more = study.add(a_trial(ONE), a_trial(TWO))

        assert study.trials == ()
        assert [trial.point for trial in more.trials] == [ONE, TWO]

    def test_candidates_are_the_points_that_were_measured(self) -> None:
        """Each with all its trials, in the order of the first ones; what cannot be is no candidate."""
        trials = [
            a_trial(TWO),
            a_trial(ONE, state=TrialState.FAILED),
            a_trial(THREE, state=TrialState.SKIPPED),
            a_trial(TWO),
        ]
        study = add_trials(a_study(), trials)

        assert list(study.candidates) == [key(TWO), key(ONE)]
        assert [len(candidate.trials) for candidate in study.candidates.values()] == [2, 1]
        assert list(study.skipped) == [key(THREE)]
        assert len(study.measured) == 3

    def test_what_was_verified_tells(self) -> None:
        """Of a candidate that was verified only those trials count; what failed tells nothing."""
        trials = [
            a_trial(ONE, an_answer("throughput", 1.0)),
            a_trial(ONE, stage=TrialPurpose.VERIFY),
            a_trial(ONE, stage=TrialPurpose.VERIFY, state=TrialState.FAILED),
            a_trial(TWO, state=TrialState.FAILED),
        ]
        one, two = add_trials(a_study(), trials).candidates.values()

        assert [trial.number for trial in one.quoted_trials] == [2]
        assert not one.failed
        assert two.quoted_trials == ()
        assert two.failed

    def test_a_configuration_is_a_point_without_its_load(self) -> None:
        """Concurrency and rate leave a server open."""
        point = {"instances": 2, "concurrency": 4, "rate": 10.0}

        assert a_study().configuration(point) == {"instances": 2}

    def test_its_time_is_that_of_its_trials(self) -> None:
        """Loading included, and what could not be."""
        study = a_study().add(replace(a_trial(ONE), seconds=1.5), replace(a_trial(TWO), seconds=2.0))

        assert study.spent == 3.5

    def test_it_shows_what_it_is(self) -> None:
        """Not a page of trials; one is a trial of a point."""
        twice = add_trials(a_study(), [a_trial(ONE), a_trial(ONE)])
        assert repr(twice) == "<Study 0123456789ab of digits: 2 trials of 1 point>"
        assert repr(a_study().add(a_trial(ONE))) == "<Study 0123456789ab of digits: 1 trial of 1 point>"
        both = a_study().add(a_trial(ONE), a_trial(TWO))
        assert repr(both) == "<Study 0123456789ab of digits: 2 trials of 2 points>"
