"""Models, versions, variants, aliases, figures, policies and the history, in a file and on a server."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import delete, update
from tests.support.sample_registry import (
    TARGET,
    a_conversion,
    a_figure,
    a_task,
    a_variant,
    a_version,
)

from modeldyno.base.errors import RequestError, StoreError, UnknownName
from modeldyno.base.job.version_name import VersionName
from modeldyno.base.result.where import kept_numbers
from modeldyno.registry.records.policy import Policy
from modeldyno.registry.records.records import FigureState, VariantState
from modeldyno.registry.store import events as registry_events
from modeldyno.stores.schema import EVENTS, MODELS
from modeldyno.testing.sample_results import a_result, a_small_result
from modeldyno.testing.sample_studies import a_study
from modeldyno.testing.stores import sweep_into

if TYPE_CHECKING:
    from modeldyno.registry.records.records import Version
    from modeldyno.registry.store.sql_registry import SqlRegistry
    from modeldyno.stores.sql import SqlStore

ODD = "\0 \ud800 ' \" % _ \\ 数 🦕"
"""Text that databases trip over."""


def add(registry: SqlRegistry, model: str = "digits", content: int = 1, **changes: object) -> Version:
    """Add a version of some content."""
    return registry.add_version(a_version(model, content, **changes))[0]


def named(text: str) -> VersionName:
    return VersionName.parse(text)


def kinds(registry: SqlRegistry, subject: str | None = None) -> list[str]:
    return [event.kind for event in registry.events(subject=subject)]


class TestAdd:
    def test_versions_are_numbered_from_one(self, registry: SqlRegistry) -> None:
        """Each model by itself, whatever number the draft has."""
        assert [add(registry, content=c).number for c in (7, 8, 9)] == [1, 2, 3]
        assert add(registry, "other", 7).number == 1

    def test_all_of_a_version_comes_back(self, registry: SqlRegistry) -> None:
        """Its inputs, metrics and labels as well."""
        stored, new = registry.add_version(a_version(task="classification", dataset="mnist"))

        assert new
        assert registry.version(named("digits/1")) == stored
        assert stored == a_version(task="classification", dataset="mnist")

    def test_the_same_content_is_the_same_version(self, registry: SqlRegistry) -> None:
        """Adding it again is no error, makes no event, and does not bring its model to the top."""
        first = add(registry)
        touched = registry.models()[0].touched
        again, new = registry.add_version(a_version())

        assert (again, new) == (first, False)
        assert kinds(registry) == ["version.added"]
        assert registry.models()[0].touched == touched
        assert registry.models()[0].versions == 1

    def test_the_same_content_for_another_task_is_another_version(self, registry: SqlRegistry) -> None:
        """And without a task it is the first of them."""
        add(registry, task="classification")
        assert add(registry, task="embedding").number == 2
        assert add(registry, task="classification", dataset="mnist").number == 3
        assert add(registry).number == 1
        assert add(registry, dataset="mnist").number == 3

    def test_the_same_content_under_another_name_is_another_model(self, registry: SqlRegistry) -> None:
        """Both are found by their digest."""
        one, other = add(registry), add(registry, "copy", 1)
        assert registry.with_digest(one.digest) == [other, one]

    def test_a_number_can_be_chosen(self, registry: SqlRegistry) -> None:
        """Numbers that were left out stay free, and the next one follows the largest."""
        assert registry.add_version(a_version(number=1), number=5)[0].number == 5
        assert add(registry, content=2).number == 6
        assert registry.add_version(a_version(number=3), number=2)[0].number == 2
        assert add(registry, content=4).number == 7

    def test_a_taken_number_is_refused_in_a_sentence(self, registry: SqlRegistry) -> None:
        """It says what has it, and which one is free; nothing is stored."""
        add(registry)
        with pytest.raises(
            RequestError, match=r"^digits/1 is another model \(sha256:\w+\); .* free one, 2\.$"
        ):
            registry.add_version(a_version(number=2), number=1)
        with pytest.raises(RequestError, match="registered already, as digits/1; leave out the version"):
            registry.add_version(a_version(), number=2)

        assert kinds(registry) == ["version.added"]
        assert [version.number for version in registry.versions("digits")] == [1]

    @pytest.mark.parametrize("number", [0, -1, 10**9, 2**70])
    def test_a_number_that_is_none_is_refused(self, registry: SqlRegistry, number: int) -> None:
        """Before anything is written."""
        with pytest.raises(RequestError, match="has a number from 1 to 999,999,999"):
            registry.add_version(a_version(), number=number)
        assert registry.models() == []

    @pytest.mark.parametrize("value", [math.nan, math.inf])
    def test_a_metric_that_is_no_number_is_refused(self, registry: SqlRegistry, value: float) -> None:
        """JSON has none, so that it could not be read back."""
        with pytest.raises(RequestError, match=r"metric 'accuracy' is .*finite number"):
            registry.add_version(a_version(metrics={"accuracy": value}))

    def test_text_that_no_database_takes_is_kept_or_refused(self, registry: SqlRegistry) -> None:
        """A null character is kept; what is no Unicode is refused in a sentence."""
        odd = ODD.replace("\ud800", "")
        kept = add(registry, task=odd, labels={odd: odd}, framework=odd, creator=odd)

        assert registry.version(named("digits")) == kept
        assert registry.models(task=odd)[0].newest == kept
        assert registry.first_broken_event() is None
        with pytest.raises(RequestError, match="is not valid Unicode"):
            add(registry, "other", reference="onnx:\udcff.onnx")
        assert [entry.name for entry in registry.models()] == ["digits"]


class TestResolve:
    def test_the_newest_a_number_and_an_alias(self, registry: SqlRegistry) -> None:
        """Each names a version."""
        one, two = add(registry, content=1), add(registry, content=2)
        registry.move_alias("digits", "champion", 1, "ada")

        assert registry.version(named("digits")) == two
        assert registry.version(named("digits/1")) == one
        assert registry.version(named("digits@champion")) == one

    @pytest.mark.parametrize(
        ("reference", "sentence"),
        [
            ("digit", "There is no registered model 'digit'; did you mean 'digits'?"),
            ("digit/1", "There is no registered model 'digit'; did you mean 'digits'?"),
            ("digit@champion", "There is no registered model 'digit'; did you mean 'digits'?"),
            ("digits/9", "digits has no version 9; modeldyno registry show digits lists those it has."),
            ("digits@champoin", "There is no alias of digits 'champoin'; did you mean 'champion'?"),
        ],
    )
    def test_what_is_not_there_is_told(self, registry: SqlRegistry, reference: str, sentence: str) -> None:
        """With what may have been meant."""
        add(registry)
        registry.move_alias("digits", "champion", 1, "ada")
        with pytest.raises(RequestError) as caught:
            registry.version(named(reference))
        assert str(caught.value) == sentence

    def test_of_many_models_no_long_list_is_shown(self, registry: SqlRegistry) -> None:
        """But the command that lists them."""
        for n in range(12):
            add(registry, f"m{n}")
        with pytest.raises(UnknownName, match="modeldyno registry list shows all"):
            registry.versions("nothing like it")


class TestLists:
    def test_models_are_listed_last_touched_first(self, registry: SqlRegistry) -> None:
        """Each with its newest version, the number of versions and its aliases."""
        for model in ("a", "b"):
            add(registry, model)
        _touch(registry, "b", "2026-01-01T00:00:00.000+00:00")
        newest = add(registry, "a", 2)
        registry.move_alias("a", "champion", 1, "ada")
        first, second = registry.models()

        assert (first.name, first.versions, first.newest) == ("a", 2, newest)
        assert (first.aliases, second.name, second.aliases) == ({"champion": 1}, "b", {})

    def test_every_model_is_on_one_page(self, registry: SqlRegistry) -> None:
        """Also those that were touched in the same millisecond."""
        names = [f"m{n:02}" for n in range(23)]
        for number, name in enumerate(names):
            add(registry, name)
            _touch(registry, name, f"2026-01-01T00:00:00.{number // 10:03}+00:00")
        listed: list[str] = []
        mark = ""
        while page := registry.models(limit=4, before=mark):
            listed += [entry.name for entry in page]
            mark = page[-1].mark

        assert sorted(listed) == names
        assert listed == [entry.name for entry in registry.models()]
        oldest = registry.models(before="2026-01-01T00:00:00.001+00:00")
        assert [entry.name for entry in oldest] == names[:10]

    def test_models_are_filtered(self, registry: SqlRegistry) -> None:
        """By a part of the name in any case, by framework and by task, of the newest version."""
        add(registry, "ResNet_50")
        add(registry, "bert", framework="torch", task="embedding")
        add(registry, "ResNetX50", framework="torch")

        def names_of(**filters: str) -> set[str]:
            return {entry.name for entry in registry.models(**filters)}  # type: ignore[arg-type]

        assert names_of(text="resnet") == {"ResNet_50", "ResNetX50"}
        assert names_of(text="t_5") == {"ResNet_50"}
        assert names_of(text="%") == set()
        assert names_of(framework="torch") == names_of(framework="PyTorch") == {"bert", "ResNetX50"}
        assert names_of(framework="torch", text="res") == {"ResNetX50"}
        assert names_of(task="embedding") == {"bert"}
        assert names_of(task="nothing") == set()

    def test_the_filters_follow_the_newest_version(self, registry: SqlRegistry) -> None:
        """That is there: also when it is added, changed or removed."""
        add(registry, content=1, framework="onnx", task="a")
        two = add(registry, content=2, framework="torch", task="b")
        assert (len(registry.models(framework="torch")), len(registry.models(framework="onnx"))) == (1, 0)
        registry.change_version(two, "ada", task="c")
        assert (len(registry.models(task="c")), len(registry.models(task="b"))) == (1, 0)
        registry.remove_version(two, "ada")
        (entry,) = registry.models(framework="onnx", task="a")
        assert entry.newest.number == 1
        registry.add_version(a_version(number=3, framework="keras"), number=9)
        registry.add_version(a_version(number=4, framework="jax"), number=5)
        assert [entry.newest.number for entry in registry.models(framework="keras")] == [9]

    def test_versions_are_listed_newest_first_by_pages(self, registry: SqlRegistry) -> None:
        """Each page continues below the last number of the page before."""
        for content in range(1, 8):
            add(registry, content=content)
        first = registry.versions("digits", limit=3)
        second = registry.versions("digits", limit=3, below=first[-1].number)

        assert [version.number for version in (*first, *second)] == [7, 6, 5, 4, 3, 2]
        assert registry.versions("digits", below=1) == []


class TestChange:
    def test_what_its_maker_says_can_be_changed(self, registry: SqlRegistry) -> None:
        """Its content stays, and the change is in the history."""
        version = add(registry)
        changed = registry.change_version(version, "eve", task="embedding", metrics={"accuracy": 0.5})

        assert registry.version(named("digits/1")) == changed
        assert changed == replace(version, task="embedding", metrics={"accuracy": 0.5})
        last = registry.events()[-1]
        assert (last.kind, last.actor, last.subject) == ("version.changed", "eve", "digits/1")
        assert last.detail == {"task": "embedding", "metrics": "{'accuracy': 0.5}"}

    def test_two_changes_at_once_are_both_kept(self, registry: SqlRegistry) -> None:
        """Each changes only what it names, not what it once read."""
        version = add(registry)
        registry.change_version(version, "ada", task="embedding")
        registry.change_version(version, "eve", dataset="mnist")

        stored = registry.version(named("digits/1"))
        assert (stored.task, stored.dataset) == ("embedding", "mnist")

    @pytest.mark.parametrize("change", [{"digest": "sha256:0"}, {"reference": "x"}, {"number": 2}])
    def test_its_content_cannot(self, registry: SqlRegistry, change: dict[str, object]) -> None:
        """Another content is another version."""
        version = add(registry)
        with pytest.raises(RequestError, match="cannot be changed; register another version"):
            registry.change_version(version, "eve", **change)
        assert registry.version(named("digits/1")) == version

    def test_a_removed_version_cannot_be_changed(self, registry: SqlRegistry) -> None:
        """Nor is that told in the history."""
        version = add(registry)
        registry.remove_version(version, "ada")
        with pytest.raises(RequestError, match="digits has no version 1"):
            registry.change_version(version, "eve", task="x")
        assert kinds(registry)[-1] == "version.removed"


class TestRemove:
    def test_all_that_belongs_to_it_goes(self, registry: SqlRegistry, shared: SqlStore) -> None:
        """Its variants, tasks, figures and aliases; Results stay, and so do other versions."""
        one, two = add(registry, content=1), add(registry, content=2)
        for version in (one, two):
            registry.put_variant(a_variant(version), "ada")
            registry.enqueue([a_task(version)])
            registry.put_figures([a_figure(a_task(version))])
        registry.move_alias("digits", "champion", 1, "ada")
        shared.put(a_small_result(), headline="")
        registry.remove_version(one, "ada")

        assert [version.number for version in registry.versions("digits")] == [2]
        assert (registry.variants(one), registry.figures("digits", 1)) == ([], [])
        assert [task.number for task in registry.tasks()] == [2]
        assert len(registry.figures("digits")) == 1
        assert registry.aliases("digits") == {}
        assert (registry.alias_moves("digits")[-1].before, registry.alias_moves("digits")[-1].after) == (
            1,
            None,
        )
        assert len(shared.find()) == 1
        assert registry.models()[0].versions == 1

    def test_its_number_is_not_given_again(self, registry: SqlRegistry) -> None:
        """Whoever wrote it down shall not find another model."""
        registry.remove_version(add(registry), "ada")
        with pytest.raises(RequestError, match="has no version any more; register one"):
            registry.version(named("digits"))
        assert registry.models() == []
        assert add(registry).number == 2

    def test_removing_it_twice_is_told(self, registry: SqlRegistry) -> None:
        """And does not count twice."""
        version = add(registry, content=1)
        add(registry, content=2)
        registry.remove_version(version, "ada")
        with pytest.raises(RequestError, match="digits has no version 1"):
            registry.remove_version(version, "ada")
        assert registry.models()[0].versions == 1

    def test_what_comes_late_is_left_out_or_told(self, registry: SqlRegistry) -> None:
        """Tasks and figures of a removed version are not stored, a variant is refused."""
        gone, there = add(registry, content=1), add(registry, content=2)
        registry.remove_version(gone, "ada")

        assert registry.enqueue([a_task(gone), a_task(there)]) == 1
        registry.put_figures([a_figure(a_task(gone))])
        assert registry.figures("digits") == []
        with pytest.raises(RequestError, match="has no version 1"):
            registry.put_variant(a_variant(gone), "ada")


class TestVariants:
    def test_the_source_comes_first(self, registry: SqlRegistry) -> None:
        """Then the others by their names, each in its last state."""
        version = add(registry)
        converting = a_variant(version, "onnx", state=VariantState.CONVERTING, digest="")
        for variant in (converting, a_variant(version, "a"), a_variant(version)):
            registry.put_variant(variant, "ada")
        done = replace(converting, state=VariantState.CLOSE, why="int8", digest="sha256:9")
        registry.put_variant(done, "worker")

        assert [variant.recipe for variant in registry.variants(version)] == ["source", "a", "onnx"]
        assert registry.variants(version)[-1] == done
        assert kinds(registry, "digits/1/onnx") == ["variant.converting", "variant.close"]

    def test_a_version_is_found_by_the_digest_of_a_variant(self, registry: SqlRegistry) -> None:
        """Of its conversion, and once even if it has both."""
        version = add(registry)
        registry.put_variant(a_variant(version), "ada")
        registry.put_variant(a_variant(version, "onnx", digest="sha256:9"), "ada")

        assert registry.with_digest("sha256:9") == [version]
        assert registry.with_digest(version.digest) == [version]
        assert registry.with_digest("sha256:0") == []


class TestAliases:
    def test_every_move_is_kept(self, registry: SqlRegistry) -> None:
        """Who moved it, from where and to where; a move to where it is, is none."""
        for content in (1, 2):
            add(registry, content=content)
        for number in (1, 2, 2, 1, None):
            registry.move_alias("digits", "champion", number, "ada")

        moves = registry.alias_moves("digits", "champion")
        assert [(move.before, move.after) for move in moves] == [(None, 1), (1, 2), (2, 1), (1, None)]
        assert {move.actor for move in moves} == {"ada"}
        assert registry.aliases("digits") == {}
        assert kinds(registry).count("alias.moved") == 4
        assert registry.alias_moves("digits", "other") == []

    def test_roll_back_undoes_the_last_move(self, registry: SqlRegistry) -> None:
        """Also its removal; and twice is back again."""
        for content in (1, 2):
            add(registry, content=content)
        for number in (1, 2):
            registry.move_alias("digits", "champion", number, "ada")
        assert registry.roll_back("digits", "champion", "eve").after == 1
        assert registry.roll_back("digits", "champion", "eve").after == 2
        registry.move_alias("digits", "champion", None, "ada")
        assert registry.roll_back("digits", "champion", "eve").after == 2
        assert registry.aliases("digits") == {"champion": 2}

    def test_without_a_move_before_there_is_nothing_to_roll_back_to(self, registry: SqlRegistry) -> None:
        """Nor if the version of then has been removed."""
        one = add(registry, content=1)
        add(registry, content=2)
        for alias in ("champion", "unknown"):
            with pytest.raises(RequestError, match=f"digits@{alias} named nothing before; give the version"):
                registry.roll_back("digits", alias, "ada")
        for number in (1, 2):
            registry.move_alias("digits", "champion", number, "ada")
        registry.remove_version(one, "ada")
        with pytest.raises(RequestError, match="digits has no version 1"):
            registry.roll_back("digits", "champion", "ada")
        assert registry.aliases("digits") == {"champion": 2}

    def test_it_names_only_what_is_there(self, registry: SqlRegistry) -> None:
        """A version, a model, or an alias that is not there is refused, and so is a bad name."""
        add(registry)
        with pytest.raises(RequestError, match="digits has no version 9"):
            registry.move_alias("digits", "champion", 9, "ada")
        with pytest.raises(UnknownName, match="no registered model 'digit'"):
            registry.move_alias("digit", "champion", 1, "ada")
        with pytest.raises(RequestError, match="digits has no alias 'champion'"):
            registry.move_alias("digits", "champion", None, "ada")
        with pytest.raises(RequestError, match="is no alias"):
            registry.move_alias("digits", "../champion", 1, "ada")
        assert kinds(registry) == ["version.added"]

    def test_aliases_of_one_model_are_its_own(self, registry: SqlRegistry) -> None:
        """Another model may have the same."""
        for model in ("a", "b"):
            add(registry, model)
            registry.move_alias(model, "champion", 1, "ada")
        registry.move_alias("a", "champion", None, "ada")
        assert (registry.aliases("a"), registry.aliases("b")) == ({}, {"champion": 1})


class TestFigures:
    def test_a_newer_figure_replaces_the_one_of_its_key(self, registry: SqlRegistry) -> None:
        """Figures of a model are listed by version, newest first."""
        one, two = add(registry, content=1), add(registry, content=2)
        figures = [a_figure(a_task(version)) for version in (one, two)]
        registry.put_figures(figures)
        newer = replace(figures[0], taken="2099-02-01T00:00:00+00:00", result="f" * 12)
        registry.put_figures([newer])

        assert registry.figures("digits") == [figures[1], newer]
        assert registry.figures("digits", 1) == [newer]
        assert registry.figures("nothing") == []

    def test_a_mark_on_an_older_figure_does_not_replace_a_newer_one(self, registry: SqlRegistry) -> None:
        """Who marks it stale may have read it before it was measured again."""
        read = a_figure(a_task(add(registry)))
        fresh = replace(read, taken="2099-02-01T00:00:00+00:00")
        registry.put_figures([fresh])
        registry.put_figures([replace(read, state=FigureState.STALE, why="old")])

        assert registry.figures("digits") == [fresh]

    def test_figures_of_several_models_are_found_at_once(self, registry: SqlRegistry) -> None:
        """Those of each as if it were asked for alone."""
        for model in ("digits", "faces", "voices"):
            version = add(registry, model)
            registry.put_figures([a_figure(a_task(version, n), taken=f"2026-01-0{n}") for n in (1, 8)])

        by_model = registry.figures_of(("voices", "digits", "none"))
        assert by_model == {model: registry.figures(model) for model in ("digits", "voices")}
        assert all(len(figures) == 2 for figures in by_model.values())

    def test_figures_of_a_target_are_found_by_their_state(self, registry: SqlRegistry) -> None:
        """As they are stored."""
        figure = a_figure(a_task(add(registry)))
        registry.put_figures([figure])
        assert registry.figures_on(TARGET, FigureState.FRESH) == [figure]
        assert registry.figures_on(TARGET, FigureState.FRESH, limit=0) == []
        registry.put_figures([replace(figure, state=FigureState.STALE)])
        assert registry.figures_on(TARGET, FigureState.FRESH) == []
        assert len(registry.figures_on(TARGET, FigureState.STALE)) == 1
        assert registry.figures_on("other", FigureState.STALE) == []


class TestPolicies:
    def test_a_policy_replaces_the_one_of_its_name(self, registry: SqlRegistry) -> None:
        """They are listed by name."""
        registry.put_policy(Policy(name="b"), "ada")
        registry.put_policy(Policy(name="a", batch_sizes=(1,)), "ada")
        registry.put_policy(Policy(name="b", convert=()), "ada")

        assert registry.policies() == [Policy(name="a", batch_sizes=(1,)), Policy(name="b", convert=())]
        assert kinds(registry) == ["policy.stored"] * 3


class TestEvents:
    def test_those_of_a_subject_and_below_it(self, registry: SqlRegistry) -> None:
        """Not of a model whose name begins alike; the newest are returned, oldest first."""
        for model in ("digits", "digits-2", "digits.x", "digit"):
            registry.put_variant(a_variant(add(registry, model)), "ada")
        registry.move_alias("digits", "champion", 1, "ada")

        assert [event.subject for event in registry.events(subject="digits")] == [
            "digits/1",
            "digits/1/source",
            "digits",
        ]
        assert kinds(registry, "digits/1") == ["version.added", "variant.agrees"]
        assert [event.kind for event in registry.events(newest=2)] == ["variant.agrees", "alias.moved"]
        last = registry.events()[-1].id
        assert [event.kind for event in registry.events(newest=1, before=last)] == ["variant.agrees"]

    def test_the_chain_holds_over_many_pages(
        self, registry: SqlRegistry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """However they are read."""
        monkeypatch.setattr(registry_events, "_PAGE", 3)
        for content in range(1, 9):
            add(registry, content=content)
        assert registry.first_broken_event() is None

    def test_what_was_changed_or_removed_behind_its_back_is_found(self, registry: SqlRegistry) -> None:
        """By the first event that does not follow."""
        for content in range(1, 6):
            add(registry, content=content)
        ids = [event.id for event in registry.events()]
        with registry._database.writing() as connection:
            connection.execute(update(EVENTS).where(EVENTS.c.id == ids[3]).values(actor="eve"))
        assert registry.first_broken_event() == ids[3]
        with registry._database.writing() as connection:
            connection.execute(delete(EVENTS).where(EVENTS.c.id == ids[1]))
        assert registry.first_broken_event() == ids[2]

    def test_a_change_that_fails_leaves_no_event(self, registry: SqlRegistry) -> None:
        """Both are in one transaction."""
        version = add(registry)

        def change_and_fail() -> None:
            with registry._changing() as connection:
                registry_events.record(connection, "ada", "version.added", "digits/9")
                connection.exec_driver_sql("SELECT * FROM no_such_table")

        with pytest.raises(StoreError):
            change_and_fail()

        assert kinds(registry) == ["version.added"]
        assert registry.version(named("digits")) == version


class TestMeasured:
    def test_results_of_an_earlier_profile_are_found_by_digest(
        self, registry: SqlRegistry, shared: SqlStore
    ) -> None:
        """Those that were stored before the model was registered, newest first."""
        for n in range(3):
            shared.put(a_small_result(id=f"{n}" * 12, created=f"2026-01-0{n + 1}"), headline=f"No. {n}")
        version = add(registry, digest="sha256:" + "5a" * 32)

        results = registry.results_of([version.digest, "sha256:0"])
        assert [result[0] for result in results] == ["2", "1", "0"]
        assert registry.results_of([]) == []

    def test_studies_are_found_by_digest(self, registry: SqlRegistry, shared: SqlStore) -> None:
        """As Results are."""
        study = sweep_into(shared, a_study(id="a" * 12))
        assert study.model is not None

        assert registry.studies_of(["sha256:0", study.model.digest]) == [study.id]
        assert registry.studies_of(["sha256:0"]) == []

    def test_a_result_is_read_by_its_whole_id(self, registry: SqlRegistry, shared: SqlStore) -> None:
        """Of one that is not there, nothing."""
        result = a_small_result()
        shared.put(result, headline="")

        assert registry.result(result.id) == result
        assert registry.result(result.id[:4]) is None


class TestDamage:
    def test_a_damaged_record_is_told_in_a_sentence(self, registry: SqlRegistry) -> None:
        """What kind of record it is, and what to do."""
        version = add(registry)
        registry.put_variant(a_variant(version), "ada")
        with registry._database.writing() as connection:
            connection.exec_driver_sql("UPDATE variants SET document = document || document")
        with pytest.raises(
            StoreError, match=r"^A variant in the registry is damaged, or of a later ModelDyno"
        ):
            registry.variants(version)
        assert registry.version(named("digits")) == version

    def test_a_conversion_has_no_measure(self, registry: SqlRegistry) -> None:
        """It comes back as it was queued."""
        task = a_conversion(add(registry))
        registry.enqueue([task])
        (stored,) = registry.tasks()
        assert replace(stored, id=0) == task


def _touch(registry: SqlRegistry, model: str, at: str) -> None:
    with registry._database.writing() as connection:
        connection.execute(update(MODELS).where(MODELS.c.name == model).values(touched=at))


class TestNumbers:
    def test_the_numbers_of_results_come_by_query(self, shared: SqlStore) -> None:
        """Also of more Results than one query may name; one that is gone has no entry."""
        result = a_result()
        shared.put(result, headline="")
        others = [f"{n:012x}" for n in range(2000)]

        numbers = shared.registry.numbers([*others, result.id], ["latency.p50", "accuracy"])

        assert numbers == {result.id: {"latency.p50": kept_numbers(result)["latency.p50"]}}
        assert shared.registry.numbers([result.id], []) == {result.id: {}}


class TestFind:
    """Versions by conditions, by a query."""

    @pytest.fixture
    def filled(self, registry: SqlRegistry) -> SqlRegistry:
        """Three versions of one model, and one of another that was made from the second."""
        for number, framework in ((1, "torch"), (2, "onnx"), (3, "torch")):
            registry.add_version(a_version(number=number, framework=framework, digest=f"sha256:{number}"))
        child = a_version("child", framework="torch", task="detection", parent="digits/2")
        registry.add_version(child)
        return registry

    @pytest.mark.parametrize(
        ("conditions", "names"),
        [
            ({"model": "digits"}, ["digits/3", "digits/2", "digits/1"]),
            ({"model": "digits", "framework": "torch"}, ["digits/3", "digits/1"]),
            ({"model": "digits", "framework": "torch", "limit": 1}, ["digits/3"]),
            ({"model": "digits", "number": 2}, ["digits/2"]),
            ({"model": "digits", "number": 2, "framework": "torch"}, []),
            ({"model": "nothing"}, []),
            ({}, ["child/1", "digits/3"]),
            ({"framework": "onnx"}, []),
            ({"task": "detection"}, ["child/1"]),
            ({"parent": "digits/2"}, ["child/1"]),
            ({"parent": "digits/1"}, []),
        ],
    )
    def test_every_condition_holds(
        self, filled: SqlRegistry, conditions: dict[str, Any], names: list[str]
    ) -> None:
        """Of a model the newest first; without one, the newest of each."""
        assert [version.name for version in filled.find_versions(**conditions)] == names
