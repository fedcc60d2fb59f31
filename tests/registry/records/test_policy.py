from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.sample_registry import TARGET, a_variant, a_version

from modeldyno.base.errors import RequestError
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.registry.records.policy import (
    CONVERSIONS,
    DEFAULT,
    FIRST,
    FURTHER,
    REPEATS,
    Policy,
    compare_task,
    conversion_tasks,
    profile_task,
    profile_tasks,
    task_key,
)
from modeldyno.registry.records.records import EvaluationData, Measure, TaskKind, Version, WeightFile

VERSION = a_version()
WORDS = st.text("abcdefgh0123456789", min_size=1, max_size=6)
MEASURES = st.builds(
    Measure,
    probes=st.lists(WORDS, min_size=1, max_size=3).map(tuple),
    settings=st.dictionaries(WORDS, st.one_of(st.integers(0, 9), st.booleans(), WORDS), max_size=2),
    backend=WORDS,
    concurrency=st.one_of(st.none(), st.integers(1, 9)),
    require=st.lists(WORDS, max_size=2).map(tuple),
    max_time=st.floats(1, 60),
)


class TestMeasures:
    def test_each_batch_size_is_measured_in_a_process(self) -> None:
        """The smallest of the policy first, with its probes, bounds and time."""
        policy = Policy(name="p", batch_sizes=(1, 4), probes=("latency",), require=("latency.p99 <= 5ms",))
        first, second = policy.measures()

        assert first == Measure(
            probes=("latency",), settings={"batch_size": 1}, require=("latency.p99 <= 5ms",), max_time=20.0
        )
        assert second == replace(first, settings={"batch_size": 4})

    def test_a_server_is_loaded_if_one_is_named(self) -> None:
        """At each concurrency; without a server none is."""
        policy = Policy(name="p", batch_sizes=(), serve="triton", concurrency=(2, 8))

        assert [(m.backend, m.probes, m.concurrency) for m in policy.measures()] == [
            ("triton", ("load",), 2),
            ("triton", ("load",), 8),
        ]
        assert list(replace(policy, serve="").measures()) == []

    def test_what_is_evaluated_is_part_of_every_figure_in_a_process(self) -> None:
        """By the digest of its samples, and not of a load."""
        policy = Policy(name="p", batch_sizes=(1, 4), serve="triton", concurrency=(2,))
        file = WeightFile(path="test.npz", digest="sha256:1", size=9)
        evaluation = EvaluationData(metrics=("accuracy",), file=file, labels="y")

        assert [(m.evaluate, m.data) for m in policy.measures(evaluation)] == [
            *[(("accuracy",), "sha256:1:y")] * 2,
            ((), ""),
        ]

    def test_a_fixed_batch_is_measured_whatever_the_policy_says(self) -> None:
        """Once, at that size; a policy that measures nothing in a process still does not."""
        shape = InputSpec(name="image", shape=(4, 3, 8, 8), dtype="float32")
        fixed = a_version(inputs=(shape,))

        def batches(policy: Policy, version: Version) -> list[object]:
            tasks = profile_tasks(a_variant(version), policy, TARGET, version)
            return [task.measure.settings["batch_size"] for task in tasks if task.measure]

        assert batches(DEFAULT, fixed) == [4]
        assert batches(DEFAULT, VERSION) == [1, 8, 32]
        assert batches(replace(DEFAULT, batch_sizes=()), fixed) == []
        assert batches(DEFAULT, a_version(inputs=())) == [1, 8, 32]


class TestTasks:
    def test_the_source_is_measured_first_and_conversions_before_other_figures(self) -> None:
        """The first figure of the source is there before anything else, and repeats come last."""
        source = list(profile_tasks(a_variant(VERSION), DEFAULT, TARGET))
        converted = list(profile_tasks(a_variant(VERSION, "onnx"), DEFAULT, TARGET))

        assert [task.priority for task in source] == [FIRST, FURTHER + 1, FURTHER + 2]
        assert [task.priority for task in converted] == [FURTHER, FURTHER + 1, FURTHER + 2]
        assert FIRST < CONVERSIONS < FURTHER < REPEATS
        assert {task.target for task in source} == {TARGET}

    def test_each_recipe_is_a_task_for_any_machine(self) -> None:
        """Conversions need no particular hardware."""
        tasks = list(conversion_tasks(VERSION, DEFAULT))

        assert [task.recipe for task in tasks] == list(DEFAULT.convert)
        assert {(task.kind, task.target, task.priority) for task in tasks} == {
            (TaskKind.CONVERT, "", CONVERSIONS)
        }

    def test_tasks_of_one_policy_have_keys_of_their_own(self) -> None:
        """For two versions, two targets, and each recipe and measure."""
        keys = [
            task.key
            for version in (VERSION, a_version(number=2), a_version("other"))
            for target in (TARGET, "other")
            for recipe in ("source", "onnx")
            for task in profile_tasks(a_variant(version, recipe), DEFAULT, target)
        ] + [task.key for task in conversion_tasks(VERSION, DEFAULT)]

        assert len(keys) == len(set(keys)) == 3 * 2 * 2 * 3 + 3


class TestKeys:
    @given(MEASURES, MEASURES)
    def test_equal_work_has_equal_keys_and_other_work_other_ones(self, one: Measure, other: Measure) -> None:
        """The whole measure counts, and the order of its settings does not."""
        turned = replace(one, settings=dict(reversed(one.settings.items())))
        keys = [task_key("digits/1", "onnx", measure, TARGET) for measure in (one, turned, other)]

        assert keys[0] == keys[1]
        assert (keys[0] == keys[2]) == (one == other)

    def test_a_key_stays_what_it_was(self) -> None:
        """Figures of earlier releases keep theirs, and so are not measured again."""
        measure = Measure(probes=("latency",), settings={"batch_size": 8})
        assert task_key("digits/1", "onnx", measure, "t") == "d7c939808989c63fad16010bdc764662"
        assert task_key("digits/1", "onnx", None, "") == "94efb234fcfc0ccc121c6efb24a069c5"

    def test_what_is_evaluated_counts(self) -> None:
        """Other samples are another figure."""
        measure = Measure(probes=("latency",), evaluate=("accuracy",), data="sha256:1")
        others = [measure, replace(measure, data="sha256:2"), replace(measure, evaluate=("loss",))]
        assert len({task_key("digits/1", "onnx", each, "t") for each in others}) == 3

    def test_a_comparison_is_other_work_than_its_first_variant(self) -> None:
        """It names the others; a measurement without any has the key that it had before there were such."""
        measure = next(DEFAULT.measures())
        task = compare_task(
            [a_variant(VERSION), a_variant(VERSION, "onnx")], replace(measure, max_time=60.0), TARGET
        )

        assert task.kind is TaskKind.COMPARE
        assert task.label == "digits/1 source: batch 1 beside digits/1 onnx"
        assert task.key != task_key("digits/1", "source", replace(measure, max_time=60.0), TARGET)
        assert task_key("digits/1", "source", measure, TARGET) == "d2901a00741ad71d308159e491af4d78"

    def test_a_key_is_short_enough_for_an_index(self) -> None:
        """Thirty-two hexadecimal digits."""
        assert len(task_key("digits/1", "onnx", None, "")) == 32

    def test_priority_does_not_count(self) -> None:
        """A figure that is measured again has the key that it had."""
        measure = next(DEFAULT.measures())
        tasks = [profile_task(a_variant(VERSION), measure, TARGET, priority=p) for p in (FIRST, REPEATS)]
        assert tasks[0].key == tasks[1].key


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("max_time", 0.0, "max_time is 0 s: it must be more than 0, and at most 20 days"),
        ("max_time", 1e308, "max_time is 1e+308 s: it must be"),
        ("max_age", float("inf"), "max_age is inf s: write more than 0, and at most 36525d"),
        ("tolerance", 1.0, "tolerance is 1: write a share between 0 and 1"),
        ("batch_sizes", (1, 0), "batch_sizes needs whole numbers of 1 or more"),
        ("concurrency", (10**9,), "concurrency needs whole numbers of 1 or more, with 9 digits at most"),
    ],
)
def test_what_no_worker_can_do_is_no_policy(field: str, value: Any, sentence: str) -> None:
    """Wherever it comes from, a file or an older store, it is refused in one sentence."""
    with pytest.raises(RequestError, match=re.escape(sentence)):
        replace(Policy(name="odd"), **{field: value})
