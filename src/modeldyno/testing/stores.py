"""Test suite that every store must pass.

Inherit from :class:`StoreSuite` and provide the fixture `store`, an empty store::

    class TestMyStore(StoreSuite):
        @pytest.fixture
        def store(self, tmp_path):
            with my_store.open(f"my:///{tmp_path}") as store:
                yield store
"""

from __future__ import annotations

import random
import string
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from modeldyno.base.errors import RequestError, StoreError
from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.base.metrics.measurement import Distribution
from modeldyno.base.result.result import Environment
from modeldyno.base.result.where import matches
from modeldyno.base.result.where_text import parse
from modeldyno.serving.load.load_curve import LoadPoint
from modeldyno.sweeps.study.study import Trial, TrialPurpose, TrialRequest, TrialState
from modeldyno.testing.sample_conversions import a_conversion
from modeldyno.testing.sample_results import a_failed_result, a_job, a_result, a_small_result
from modeldyno.testing.sample_series import a_capacity, a_comparison, a_ladder
from modeldyno.testing.sample_studies import a_study

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.base.job.job import Job
    from modeldyno.base.job.knob import KnobValue
    from modeldyno.base.result.result import Result
    from modeldyno.stores.interface import Entry, Store
    from modeldyno.sweeps.study.study import Study


def ids(entries: Sequence[Entry]) -> list[str]:
    """Return the ids of entries, in their order."""
    return [entry.id for entry in entries]


def fill_store(store: Store, count: int) -> list[Result]:
    """Store the given number of small Results, each a second after the one before."""
    results = [
        a_small_result(id=f"{n:02x}" * 6, created=f"2026-01-01T00:00:{n:02}+00:00") for n in range(count)
    ]
    for result in results:
        store.put(result, headline=f"Number {result.id}.")
    return results


CONDITIONS = (
    "latency.p50 < 2ms",
    "latency.p50 >= 0.002s",
    "latency.p99 < 20ms",
    "latency.p99.raw < 20ms",
    "surely latency.p50 < 2ms",
    "surely throughput > 6000/s",
    "not latency.p50 < 2ms",
    "latency.p50 > 2ms or failed",
    "throughput = 6200.5/s",
    "parameters = 4810",
    "load_time <= 125ms and load_time >= 125 ms",
    "weight_bytes@float32 > 10kB",
    "latency.max > 3ms",
    "batch_size = 8",
    "batch_size = 8.0",
    "batch_size != 8",
    "batch_size > 7 and batch_size < 9",
    "config.threads = 2",
    "io_binding = false",
    "io_binding = true",
    "precision = fp16",
    "precision ~ FP",
    "note ~ '100%'",
    'note = "it\'s"',
    "name = Bert",
    "name ~ bERT",
    "name ~ '_'",
    "name ~ '模型'",
    "tag = nightly",
    "tag != nightly",
    "tag ~ NIGHT and not tag = @main",
    "tag = @main",
    "backend = onnxruntime and device = cpu",
    "device ~ CUDA",
    "framework = torch",
    "processor ~ 'ANOTHER'",
    "gpu ~ a100",
    "failed",
    "failed = no",
    "created = 2026-01-02",
    "created > 2026-01-02",
    "created <= 2026-01-02",
    "created >= '2026-01-02 03:04'",
    "created > 2 days ago",
    "created < yesterday",
    "(batch_size = 8 or tag = nightly) and not (name = Bert or failed)",
)
"""Each holds for one of `different_results` or more."""


def different_results() -> list[tuple[Result, tuple[str, ...]]]:
    """Return Results with their tags that differ in everything that conditions name."""
    usual, job = a_result(), a_job()
    devices = Environment(hardware={"processor": "another", "devices": "2 x NVIDIA A100"})

    def of(name: str, framework: str) -> ModelIdentity:
        return ModelIdentity(name=name, digest=f"sha256:{name}", framework=framework)

    def job_with(**config: KnobValue) -> Job:
        return replace(job, config=config)

    slow = [0.5 + n % 7 / 100 for n in range(800)]
    odd = job_with(batch_size=10**400, precision="fp16", note="100% sure", io_binding=True)
    return [
        (replace(usual, id="1" * 12, model=of("Bert", "onnx")), ("nightly", "@main")),
        (a_result(id="2" * 12, samples=slow, model=of("net_1", "torch"), job=odd), ()),
        (
            a_result(id="3" * 12, created="2026-01-04T00:00:00+00:00", environment=devices,
                     job=job_with(device="cuda:0", note="it's"), model=of("模型", "torch")),
            ("nightly",),
        ),
        (a_failed_result(id="4" * 12, created="2025-12-01T00:00:00+00:00"), ()),
        (a_small_result(id="5" * 12, created="2026-01-02T03:04:59+00:00", model=of("100%", "onnx")), ()),
        (a_result(id="6" * 12, samples=[0.001 + n % 5 / 1e6 for n in range(5000)]), ()),
    ]  # fmt: skip


_ALPHABET = string.ascii_letters + string.digits
ODD_NAMES = {
    "quotes": """it's "quoted" `three` ways""",
    "unicode": "模型 ﷽ 🏋️ e\u0301",
    "sql": "x'); DROP TABLE results; --",
    "wildcards": "100%_of[a-z]*?",
    "newlines": "one\ntwo\r\n\tthree",
    "null": "a\0b",
    "placeholders": "%s %(name)s :name ?1 {0}",
    "backslash": "\\N\\",
    "blank": " ",
    "10 kB": "".join(random.Random(0).choices(_ALPHABET, k=10_000)),
}
"""Names that have broken programs that concatenate text."""


class StoreSuite:
    """Tests of a store."""

    @pytest.fixture
    def store(self) -> Store:
        """Return an empty store."""
        raise NotImplementedError("Provide the fixture `store`.")

    def test_round_trip(self, store: Store) -> None:
        """What is put is got back equal."""
        result = a_result()
        store.put(result, headline="It went well.")

        assert result == store.get(result.id)

    def test_failed_result(self, store: Store) -> None:
        """A Result of a run that failed is kept too, and its entry says so."""
        result = a_failed_result(id="f" * 12)
        store.put(result, headline="Out of memory.")

        assert result == store.get(result.id)
        assert [entry.failed for entry in store.find()] == [True]

    def test_samples_bit_for_bit(self, store: Store) -> None:
        """Raw samples come back bit for bit, those that print alike included."""
        samples = [0.1 + 0.2, 0.3, 1e-150, 1e150, -0.0, 1e-3]
        runs = [samples, samples[::-1]]
        put = a_result()
        latency = put.measurements[0]
        value = Distribution.of(*runs)
        measured = (type(latency)(metric="latency", value=value),)
        store.put(a_result(measurements=measured), headline="")

        got = store.get(put.id).measurements[0].value

        assert isinstance(got, Distribution)
        assert value.runs == got.runs

    def test_many_samples(self, store: Store) -> None:
        """A hundred thousand samples are kept whole."""
        source = random.Random(1)
        result = a_result(samples=[source.expovariate(1000) for _ in range(100_000)])
        store.put(result, headline="")

        assert result == store.get(result.id)

    def test_prefix(self, store: Store) -> None:
        """Any beginning of an id that no other has names a Result."""
        first, second = fill_store(store, 2)

        assert first == store.get("000")
        assert second == store.get("0101010101")

    def test_one_character(self, store: Store) -> None:
        """One character is enough where nothing else begins with it."""
        result = a_small_result(id="a" * 12)
        fill_store(store, 2)
        store.put(result, headline="")

        assert result == store.get("a")

    def test_ambiguous_prefix(self, store: Store) -> None:
        """A beginning that several ids share is refused in one line that lists some of them."""
        fill_store(store, 12)

        with pytest.raises(RequestError) as caught:
            store.get("0")

        message = str(caught.value)
        assert "000000000000" in message
        assert "010101010101" in message
        assert "0b0b0b0b0b0b" not in message
        assert "\n" not in message

    def test_whole_id_is_never_ambiguous(self, store: Store) -> None:
        """An id that another one begins with names its own Result."""
        short, long = a_small_result(id="ab"), a_small_result(id="abc")
        store.put(short, headline="")
        store.put(long, headline="")

        assert short == store.get("ab")
        assert long == store.get("abc")

    @pytest.mark.parametrize(
        "prefix", ["beef", "", "%", "_", "0' OR 1=1", "x" * 10_000, "\0", "\udcff", "a\nb"]
    )
    def test_unknown_id(self, store: Store, prefix: str) -> None:
        """What names nothing is refused in one short line that says what to do."""
        fill_store(store, 2)

        for refused in (store.get, store.remove, store.tag):
            with pytest.raises(RequestError) as caught:
                refused(prefix)

            assert "\n" not in str(caught.value)
            assert 40 < len(str(caught.value)) < 400
            assert len(store.find()) == 2

    def test_get_by_tag(self, store: Store) -> None:
        """A tag names the newest Result that has it."""
        results = fill_store(store, 3)
        store.tag("01", add=["baseline"])
        store.tag("00", add=["baseline"])

        assert results[1] == store.get("baseline")

    def test_tag_before_beginning(self, store: Store) -> None:
        """Where a tag reads like the beginning of ids, the tagged Result is meant; a whole id is an id."""
        results = fill_store(store, 3)
        store.tag("01", add=["0", results[2].id])

        assert results[1] == store.get("0")
        assert results[2] == store.get(results[2].id)

    def test_part_of_a_tag(self, store: Store) -> None:
        """A tag is named whole."""
        fill_store(store, 1)
        store.tag("00", add=["release"])

        with pytest.raises(RequestError):
            store.get("rel")

    def test_newest_first(self, store: Store) -> None:
        """Entries come newest first, in whatever order they were put."""
        moments = [
            "2026-03-01T00:00:00+00:00",
            "2024-03-01T00:00:00+00:00",
            "2026-02-28T23:59:59.999999+00:00",
        ]
        for n, moment in enumerate(moments):
            store.put(a_small_result(id=f"{n}" * 12, created=moment), headline="")

        assert ids(store.find()) == ["000000000000", "222222222222", "111111111111"]

    @pytest.mark.parametrize(("limit", "count"), [(0, 0), (1, 1), (3, 3), (100, 5)])
    def test_limit(self, store: Store, limit: int, count: int) -> None:
        """No more entries than asked for are given, the newest of them."""
        results = fill_store(store, 5)

        newest = [result.id for result in reversed(results)]
        assert newest[:count] == ids(store.find(limit=limit))

    def test_pages_of_a_list(self, store: Store) -> None:
        """The page after an entry begins with the next one, also among entries of one moment."""
        for n in range(5):
            store.put(a_small_result(id=f"{n}" * 12, created=f"2026-01-0{1 + n // 2}"), headline="")

        pages, mark = [], ""
        while page := store.find(limit=2, before=mark):
            pages.append(ids(page))
            mark = page[-1].mark

        assert pages == [[4 * "444", 4 * "333"], [4 * "222", 4 * "111"], [4 * "000"]]

    def test_pages_of_studies(self, store: Store) -> None:
        """So are studies listed."""
        for n in range(3):
            store.put_study(a_study(id=f"{n}" * 12, created=f"2026-01-0{1 + n}"), headline="")

        newest = store.studies(limit=2)

        assert [entry.id[0] for entry in store.studies(before=newest[-1].mark)] == ["0"]

    def test_change_mark(self, store: Store) -> None:
        """Each write moves it, and a reader does not."""
        marks = [store.change_mark()]
        for n in range(3):
            store.put(a_small_result(id=f"{n}" * 12), headline="")
            marks.append(store.change_mark())
        store.tag("0" * 12, add=["x"])
        marks.append(store.change_mark())
        store.find()

        assert len(set(marks)) == len(marks)
        assert store.change_mark() == marks[-1]

    def test_no_tags_write_nothing(self, store: Store) -> None:
        """Asking for the tags of a Result is a read."""
        fill_store(store, 1)
        store.tag("00", add=["x"])
        before = store.change_mark()

        assert store.tag("00").tags == ("x",)
        assert store.change_mark() == before

    def test_threads(self, store: Store) -> None:
        """Several threads read a store, while it is empty and while it is filled."""
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(lambda _: list(store.find()), range(40))) == [[]] * 40
            writing = pool.map(lambda n: store.put(a_small_result(id=f"{n}" * 12), headline=""), range(8))
            reading = pool.map(lambda _: len(store.find()), range(40))
            assert list(writing) == [None] * 8
            assert max(reading) <= 8

        assert len(store.find()) == 8

    def test_find_in_empty_store(self, store: Store) -> None:
        """A new store holds nothing."""
        assert list(store.find()) == []

    def test_entry(self, store: Store) -> None:
        """An entry tells what the Result is, without opening it."""
        result = a_result()
        store.put(result, headline="latency p50 1.28 ms.")

        (entry,) = store.find()

        assert result.id == entry.id
        assert result.created == entry.created
        assert entry.name == "digits"
        assert result.model is not None
        assert result.model.digest == entry.digest
        assert entry.backend == "onnxruntime"
        assert result.job.config == entry.config
        assert [type(value) for value in result.job.config.values()] == list(map(type, entry.config.values()))
        assert entry.headline == "latency p50 1.28 ms."
        assert entry.tags == ()
        assert entry.failed is False

    def test_find_by_name(self, store: Store) -> None:
        """Entries of one name are found by the whole of it."""
        store.put(a_small_result(name="bert", id="b" * 12), headline="")
        store.put(a_small_result(name="bert-large", id="c" * 12), headline="")

        assert ids(store.find(name="bert")) == ["bbbbbbbbbbbb"]
        assert ids(store.find(name="ber")) == []

    def test_names_alike_for_long(self, store: Store) -> None:
        """Names that differ in their last character only are different names."""
        store.put(a_small_result(name="x" * 5000 + "1", id="1" * 12), headline="")
        store.put(a_small_result(name="x" * 5000 + "2", id="2" * 12), headline="")

        assert ids(store.find(name="x" * 5000 + "2")) == ["222222222222"]

    def test_names(self, store: Store) -> None:
        """Each name that has results enough is listed once, with their number, the newest first."""
        long = "x" * 5000
        for second, name in enumerate(("bert", long + "1", "bert", "mlp", long + "2", long + "1")):
            created = f"2026-01-01T00:00:{second:02}+00:00"
            store.put(a_small_result(name=name, id=f"{second:012}", created=created), headline="")

        listed = [(one.name[-3:], one.results, one.newest[17:19]) for one in store.names()]
        assert listed == [("xx1", 2, "05"), ("xx2", 1, "04"), ("mlp", 1, "03"), ("ert", 2, "02")]
        assert [one.name for one in store.names(least=2)] == [long + "1", "bert"]
        store.remove("000000000002")
        assert [one.name for one in store.names(least=2)] == [long + "1"]

    def test_find_by_tag(self, store: Store) -> None:
        """Entries with a tag are found by it, with all the tags that they have."""
        fill_store(store, 3)
        store.tag("00", add=["nightly", "a100"])
        store.tag("02", add=["nightly"])

        entries = store.find(tag="nightly")

        assert ids(entries) == ["020202020202", "000000000000"]
        assert [entry.tags for entry in entries] == [("nightly",), ("a100", "nightly")]

    def test_find_by_name_and_tag(self, store: Store) -> None:
        """Name and tag together must both hold."""
        store.put(a_small_result(name="bert", id="b" * 12), headline="")
        store.put(a_small_result(name="gpt", id="c" * 12), headline="")
        store.tag("b", add=["x"])
        store.tag("c", add=["x"])

        assert ids(store.find(name="gpt", tag="x")) == ["cccccccccccc"]

    def test_tagging(self, store: Store) -> None:
        """Tags are added once and removed; the entry that comes back has those that are left."""
        fill_store(store, 1)

        assert store.tag("00", add=["b", "a", "a"]).tags == ("a", "b")
        assert store.tag("00", add=["c", "b"], remove=["a", "unknown"]).tags == ("b", "c")
        assert store.find()[0].tags == ("b", "c")

    @pytest.mark.parametrize("tag", ["", "  ", "two\nlines", "x" * 1000, "a\0b", "\udcff"])
    def test_refused_tags(self, store: Store, tag: str) -> None:
        """A tag that could not be typed or shown on one line is refused, and none is added."""
        fill_store(store, 1)

        with pytest.raises(RequestError):
            store.tag("00", add=["fine", tag])

        assert store.find()[0].tags == ()

    @pytest.mark.parametrize("tag", ["it's", "模型", "a b", "%", "x'); DROP TABLE tags; --"])
    def test_odd_tags(self, store: Store, tag: str) -> None:
        """A tag may be any line of text."""
        (result,) = fill_store(store, 1)
        store.tag("00", add=[tag])

        assert result == store.get(tag)
        assert (tag,) == store.find(tag=tag)[0].tags

    @pytest.mark.parametrize("kind", ODD_NAMES)
    def test_odd_names(self, store: Store, kind: str) -> None:
        """A model may have any name: it comes back as it was, and can be found by it."""
        name = ODD_NAMES[kind]
        result = a_result(name=name)
        store.put(result, headline=name)

        assert result == store.get(result.id)
        assert [result.id] == ids(store.find(name=name))

    def test_name_that_is_no_text(self, store: Store) -> None:
        """A model whose file name is not UTF-8 is kept, with that shown as what it is not."""
        store.put(a_result(name="m\udcff"), headline="m\udcff")

        assert store.get("0123").name.replace("\ufffd", "?") == "m?"
        assert len(store.find(name="m\udcff")) == 1

    def test_replace(self, store: Store) -> None:
        """Putting an id again replaces the Result, and leaves its tags."""
        store.put(a_result(), headline="before")
        store.tag("0123", add=["kept"])
        after = a_result(name="after", samples=[1.0, 2.0])
        store.put(after, headline="after")

        (entry,) = store.find()

        assert after == store.get("0123")
        assert (entry.name, entry.headline, entry.tags) == ("after", "after", ("kept",))

    def test_remove(self, store: Store) -> None:
        """Removing deletes the one Result that is named, with its tags, and gives its id."""
        first, _ = fill_store(store, 2)
        store.tag("01", add=["gone"])

        assert store.remove("gone") == "010101010101"
        assert [first.id] == ids(store.find())
        with pytest.raises(RequestError):
            store.get("gone")

    def test_put_after_remove(self, store: Store) -> None:
        """A Result that was removed can be put again, and has no tags then."""
        result = a_result()
        store.put(result, headline="")
        store.tag("0123", add=["old"])
        store.remove("0123")
        store.put(result, headline="")

        assert result == store.get("0123")
        assert store.find()[0].tags == ()

    # --- conditions --------------------------------------------------------------------------------

    def test_where(self, store: Store) -> None:
        """Exactly those Results are found for which a condition holds: for each, one or more, and not all."""
        stored, wrong = different_results(), []
        for result, tags in stored:
            store.put(result, headline="")
            store.tag(result.id, add=tags)
        for text in CONDITIONS:
            where = parse(text, now=datetime(2026, 1, 5, tzinfo=UTC))
            expected = {result.id for result, tags in stored if matches(where, result, tags)}
            if set(ids(store.find(where=where))) != expected or not 0 < len(expected) < len(stored):
                wrong.append((text, expected))

        assert wrong == []

    def test_where_with_the_others(self, store: Store) -> None:
        """Conditions hold together with a name, a tag and a limit, newest first."""
        for result, tags in different_results():
            store.put(result, headline="")
            store.tag(result.id, add=tags)
        where = parse("not failed", now=datetime(2026, 1, 5, tzinfo=UTC))

        assert ids(store.find(where=where, tag="nightly")) == ["333333333333", "111111111111"]
        assert ids(store.find(where=where, tag="nightly", limit=1)) == ["333333333333"]
        assert ids(store.find(where=where, name="Bert")) == ["111111111111"]

    @pytest.mark.parametrize("text", ["btach_size = 8", "weight_bytes@flaot32 > 1"])
    def test_where_without_meaning(self, store: Store, text: str) -> None:
        """What no Result has is refused, as it is misspelt; in an empty store, nothing is."""
        where = parse(text, now=datetime(2026, 1, 5, tzinfo=UTC))

        assert list(store.find(where=where)) == []
        store.put(a_result(), headline="")
        with pytest.raises(
            RequestError, match=r"No stored result has .*; stored ones have .*(batch_size|float32)"
        ):
            store.find(where=where)

    def test_where_follows_what_is_stored(self, store: Store) -> None:
        """Of a Result that was replaced, what holds now is found; of one that was removed, nothing."""
        where = parse("latency.mean < 2ms", now=datetime(2026, 1, 5, tzinfo=UTC))
        store.put(a_result(), headline="")
        store.put(a_result(samples=[1.0] * 20), headline="")

        assert list(store.find(where=where)) == []
        store.put(a_result(), headline="")
        assert ids(store.find(where=where)) == ["0123456789ab"]
        store.remove("0123")
        assert list(store.find(where=where)) == []

    # --- studies -----------------------------------------------------------------------------------

    def test_study_round_trip(self, store: Store) -> None:
        """A study comes back equal, with its trials in their order: done, failed and skipped."""
        study = sweep_into(store, a_study())

        assert study == store.study(study.id)
        assert [trial.number for trial in study.trials] == [1, 2, 3, 4]

    def test_study_before_its_first_trial(self, store: Store) -> None:
        """A study is kept before anything was measured."""
        study = a_study()
        store.put_study(study, headline="")

        assert study == store.study(study.id)

    def test_trial_comes_with_its_result(self, store: Store) -> None:
        """The Result of a trial is there as soon as the trial is, and found by its id."""
        study = sweep_into(store, a_study())

        for trial in study.measured:
            assert store.get(trial.result).id == trial.result

    def test_trials_are_listed_by_their_study(self, store: Store) -> None:
        """Results of trials do not crowd a list of Results, unless they have the tag that is asked for."""
        plain = a_small_result(id="a" * 12)
        store.put(plain, headline="")
        study = sweep_into(store, a_study())
        store.tag(study.trials[0].result, add=["kept"])

        assert ids(store.find()) == [plain.id]
        assert ids(store.find(tag="kept")) == [study.trials[0].result]

    def test_study_entry(self, store: Store) -> None:
        """An entry tells what a study is, without opening it."""
        study = sweep_into(store, a_study(name="nightly"))
        store.put_study(study, headline="2.1 times the default.")

        (entry,) = store.studies()

        assert (entry.id, entry.created, entry.name) == (study.id, study.created, "nightly")
        assert study.model is not None
        assert entry.digest == study.model.digest
        assert entry.headline == "2.1 times the default."
        assert (entry.trials, entry.skipped) == (3, 1)

    def test_study_by_name(self, store: Store) -> None:
        """A name means the newest study of that name; an id, or the beginning of one, comes first."""
        for number, moment in enumerate(("2026-01-01", "2026-03-01", "2026-02-01")):
            store.put_study(a_study(id=f"{number}" * 12, created=moment, name="n"), headline="")
        store.put_study(a_study(id="abc", created="2025-01-01", name="000"), headline="")

        assert store.study("n").id == "111111111111"
        assert store.study("000").id == "000000000000"
        assert [entry.id[0] for entry in store.studies(name="n")] == ["1", "2", "0"]
        assert [entry.id[0] for entry in store.studies(limit=2)] == ["1", "2"]

    @pytest.mark.parametrize("prefix", ["beef", "", "%", "0' OR 1=1", "x" * 10_000, "\0", "\udcff", "a\nb"])
    def test_unknown_study(self, store: Store, prefix: str) -> None:
        """What names no study is refused in one short line that says what to do."""
        store.put_study(a_study(), headline="")

        for refused in (store.study, store.remove_study):
            with pytest.raises(RequestError) as caught:
                refused(prefix)

            assert "\n" not in str(caught.value)
            assert 40 < len(str(caught.value)) < 400
        assert len(store.studies()) == 1

    def test_ambiguous_study(self, store: Store) -> None:
        """A beginning that several studies share is refused."""
        for number in "12":
            store.put_study(a_study(id=f"0{number}" * 6), headline="")

        with pytest.raises(RequestError, match="Several ids start with '0': 010101010101, 020202020202"):
            store.study("0")

    def test_put_study_again(self, store: Store) -> None:
        """Putting a study again changes its headline and its definition, and never a trial that is kept."""
        study = sweep_into(store, a_study())
        other = replace(study, seed=7, trials=(replace(study.trials[0], failure="never"), *study.trials[1:]))
        store.put_study(other, headline="later")

        assert store.study(study.id) == replace(study, seed=7)
        assert [entry.headline for entry in store.studies()] == ["later"]

    def test_study_from_elsewhere(self, store: Store) -> None:
        """A study is put whole where the Results of its trials are not."""
        study = a_study()
        for result, ask in TRIALS:
            study, _ = add_sample_trial(study, result, ask)
        store.put_study(study, headline="")

        assert study == store.study(study.id)
        with pytest.raises(RequestError):
            store.get(study.trials[0].result)

    def test_two_go_on_with_a_study(self, store: Store) -> None:
        """A trial whose number another process has taken is refused, and so is its Result."""
        study = a_study()
        store.put_study(study, headline="")
        first, result = add_sample_trial(study, *TRIALS[0])
        store.add_trial(first, result, headline="")
        second, late = add_sample_trial(study, a_result(id="e" * 12), TRIALS[0][1])

        with pytest.raises(StoreError, match="Another process has continued the study"):
            store.add_trial(second, late, headline="")

        assert store.study(study.id) == first
        with pytest.raises(RequestError):
            store.get("eeee")

    def test_remove_study(self, store: Store) -> None:
        """With a study go its trials and their Results, but for those that were tagged."""
        store.put(a_small_result(id="a" * 12), headline="")
        study = sweep_into(store, a_study())
        other = sweep_into(store, a_study(id="f" * 12), renamed=True)
        store.tag(study.trials[0].result, add=["kept"])

        assert store.remove_study(study.id[:4]) == study.id
        assert [entry.id for entry in store.studies()] == [other.id]
        assert store.study(other.id) == other
        assert sorted(ids(store.find())) == sorted([study.trials[0].result, "a" * 12])
        with pytest.raises(RequestError):
            store.get(study.trials[1].result)

    def test_remove_result_of_a_trial(self, store: Store) -> None:
        """A study stays whole when the Result of a trial is removed."""
        study = sweep_into(store, a_study())
        store.remove(study.trials[0].result)

        assert store.study(study.id) == study

    @pytest.mark.parametrize("kind", ODD_NAMES)
    def test_odd_study_names(self, store: Store, kind: str) -> None:
        """A study may have any name, and is found by it."""
        study = a_study(name=ODD_NAMES[kind])
        store.put_study(study, headline=ODD_NAMES[kind])

        assert store.study(study.id) == study
        assert [entry.id for entry in store.studies(name=ODD_NAMES[kind])] == [study.id]
        assert store.study(ODD_NAMES[kind]).id == study.id

    # --- comparisons, load series and conversions ----------------------------------------------------

    def test_conclusion_round_trip(self, store: Store) -> None:
        """A comparison, a load curve, a search and a conversion are got by the beginning of their ids."""
        documents = (a_comparison(), a_ladder(), a_capacity(), replace(a_conversion(), id="5e" * 6))
        for document in documents:
            store.put_conclusion(document, headline="It is so.")

        assert [store.conclusion(document.id[:8]) for document in documents] == list(documents)

    def test_conclusion_entry(self, store: Store) -> None:
        """A list says when it was made, what it is, of which model, and what came out; the newest first."""
        store.put_conclusion(a_ladder(), headline="The knee is at 4.")
        store.put_conclusion(replace(a_capacity(), created="2027-01-01", name="other"), headline="4 holds.")

        first, second = store.conclusions()

        assert (first.id, first.kind, first.name, first.headline) == (
            a_capacity().id, "capacity", "other", "4 holds.",
        )  # fmt: skip
        assert (second.kind, second.created) == ("ladder", a_ladder().created)
        assert [entry.id for entry in store.conclusions(name=a_ladder().name)] == [a_ladder().id]
        assert [entry.id for entry in store.conclusions(limit=1)] == [first.id]

    def test_pages_of_conclusions(self, store: Store) -> None:
        """Those of some kinds are listed alone, and the page after an entry begins with the next one."""
        store.put_conclusion(a_ladder(), headline="")
        store.put_conclusion(replace(a_capacity(), created="2027-01-01"), headline="")
        store.put_conclusion(replace(a_comparison(), created="2028-01-01"), headline="")

        loads = store.conclusions(kinds=("ladder", "capacity"))

        assert [entry.kind for entry in loads] == ["capacity", "ladder"]
        assert [entry.kind for entry in store.conclusions(before=loads[0].mark)] == ["ladder"]

    @pytest.mark.parametrize("prefix", ["", "none", "%", "_"])
    def test_unknown_conclusion(self, store: Store, prefix: str) -> None:
        """What is not there, and what would be all of them, is a wrong request."""
        store.put_conclusion(a_ladder(), headline="")

        with pytest.raises(RequestError):
            store.conclusion(prefix)

    def test_put_conclusion_again(self, store: Store) -> None:
        """The same id is kept once, as it was put last."""
        store.put_conclusion(a_ladder(), headline="first")
        longer = replace(a_ladder(), rungs=(*a_ladder().rungs, LoadPoint(load=9, failure="no answer")))
        store.put_conclusion(longer, headline="second")

        assert store.conclusion(longer.id) == longer
        assert [entry.headline for entry in store.conclusions()] == ["second"]

    def test_remove_conclusion(self, store: Store) -> None:
        """The document goes, and the results that it was concluded from stay."""
        result = a_result()
        store.put(result, headline="")
        store.put_conclusion(a_ladder(), headline="")

        assert store.remove_conclusion(a_ladder().id[:5]) == a_ladder().id
        assert list(store.conclusions()) == []
        assert store.get(result.id) == result

    @pytest.mark.parametrize("kind", ODD_NAMES)
    def test_odd_conclusion_names(self, store: Store, kind: str) -> None:
        """Any text can be the name of a model of which something was concluded."""
        store.put_conclusion(replace(a_ladder(), name=ODD_NAMES[kind]), headline=ODD_NAMES[kind])

        assert [entry.id for entry in store.conclusions(name=ODD_NAMES[kind])] == [a_ladder().id]


TRIALS: tuple[tuple[Result | None, TrialRequest], ...] = (
    (a_result(id="1" * 12), TrialRequest(point={}, stage=TrialPurpose.DEFAULT)),
    (a_failed_result(id="2" * 12), TrialRequest(point={"batch_size": 2, "graph_optimization": "all"})),
    (None, TrialRequest(point={"batch_size": 1, "io_binding": True})),
    (
        a_result(id="3" * 12),
        TrialRequest(point={"batch_size": 1, "io_binding": False}, stage=TrialPurpose.VERIFY, care=2.0),
    ),
)
"""Trials of a study: a Result, or None where the point is invalid."""


def add_sample_trial(study: Study, result: Result | None, ask: TrialRequest) -> tuple[Study, Result | None]:
    """Add a trial to a study."""
    number = len(study.trials) + 1
    if result is None:
        trial = Trial(number=number, point=ask.point, state=TrialState.SKIPPED, failure="It is invalid.")
        return study.add(trial), None
    study = replace(study, model=study.model or result.model, environment=result.environment)
    return study.add(Trial.of(result, study.goal, ask, number=number, seconds=1.5)), result


def sweep_into(store: Store, study: Study, *, renamed: bool = False) -> Study:
    """Store a study with its trials, one by one."""
    store.put_study(study, headline="new")
    for result, ask in TRIALS:
        own = result and replace(result, id=f"{result.id[:-1]}{'f' if renamed else 'e'}")
        study, kept = add_sample_trial(study, own, ask)
        store.add_trial(study, kept, headline=f"{len(study.trials)} trials", brief="")
    return study
