"""``modeldyno sweep``, as a user types it."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import signal
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from modeldyno.base import plugins
from modeldyno.base.result.result import Artifact, FailureKind
from modeldyno.cli.actions.sweep_study import exit_code
from modeldyno.sweeps import codec as codec_study
from modeldyno.sweeps import config_export, loop
from modeldyno.sweeps.schema import KEYS
from modeldyno.sweeps.study.goal import Rank
from modeldyno.sweeps.study.ranking import ranking
from modeldyno.sweeps.study.study import base_name
from modeldyno.testing.sample_studies import SimulatedTrials

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from modeldyno.base.job.job import Job
    from modeldyno.base.result.result import Event
    from modeldyno.sweeps.study.study import Study

    class CommandResult(Protocol):
        code: int
        out: str
        err: str


MODEL = str(Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx")
BATCHES = (MODEL, "--space", "batch_size=1,2,4", "--strategy", "grid")


def by_batch(point: dict[str, Any]) -> float:
    """A bench where larger batches are faster."""
    return 100.0 * float(point.get("batch_size", 1))


class Configured(SimulatedTrials):
    """A bench whose server has configuration files."""

    __slots__ = ()

    def _events(self, job: Job, *, fresh: bool) -> list[Event]:
        text = f'name: "digits"\ninstances: {job.config.get("instances", 0)}\n'
        artifact = Artifact(name="config.pbtxt", path="", digest="sha256:00", text=text)
        return [*super()._events(job, fresh=fresh), artifact]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Callable[..., SimulatedTrials]:
    """Replace the measurement of trials by a simulation."""

    def put(
        rate: Any = by_batch, kind: type[SimulatedTrials] = SimulatedTrials, **more: Any
    ) -> SimulatedTrials:
        made = kind(rate=rate, **more)
        monkeypatch.setattr(loop, "subprocess_executors", lambda _interrupted, _limit: nullcontext(made))
        return made

    return put


def study_of(result: CommandResult) -> Study:
    """Return the newest study of the store."""
    assert result.code is not None
    with plugins.store() as store:
        return store.study(store.studies(limit=1)[0].id)


def test_the_best_is_told_and_kept(
    modeldyno: Callable[..., CommandResult], bench: Callable[..., SimulatedTrials]
) -> None:
    """The sentence, the table, and how to continue, within 80 columns; every trial is stored."""
    bench()
    result = modeldyno("sweep", *BATCHES)
    outcome = study_of(result)

    assert result.code == 0
    assert "batch_size=4 gives throughput 400/s" in " ".join(result.out.split())
    assert "The best of 3 configurations" in result.out
    assert f"modeldyno sweep --rerank {outcome.id[:6]}" in result.out
    assert all(len(line) <= 83 for line in result.out.splitlines())
    assert len(outcome.trials) >= 3
    assert outcome.name == "digits"


@pytest.mark.parametrize(
    ("arguments", "limit"),
    [
        ((), "It ends when nothing more can be learned; --max-time sets a limit."),
        (("--max-time", "3m"), "At most 3 min (--max-time)."),
        (("--max-time", "1m", "--max-trials", "3"), "At most 60 s (--max-time), 3 trials (--max-trials)."),
    ],
)
def test_a_sweep_says_first_how_long_it_takes(
    modeldyno: Callable[..., CommandResult],
    bench: Callable[..., SimulatedTrials],
    arguments: tuple[str, ...],
    limit: str,
) -> None:
    """Its limits are printed with the goal, before anything is measured."""
    bench()
    assert f"Goal: maximize throughput. {limit}" in " ".join(
        modeldyno("sweep", *BATCHES, *arguments).out.split()
    )


def test_a_file_says_the_same_as_options(
    modeldyno: Callable[..., CommandResult], bench: Callable[..., SimulatedTrials], tmp_path: Path
) -> None:
    """A sweep in YAML finds the same; options override it, modeldyno.toml does not."""
    bench()
    (tmp_path / "s.yaml").write_text(
        f"model: {MODEL}\nspace: {{batch_size: [1, 2, 4]}}\nstrategy: grid\nplan: {{seed: 3}}\n"
        "require: throughput >= 150/s\nmaximize: throughput\n"
    )
    (tmp_path / "modeldyno.toml").write_text('[sweep]\nseed = 7\nmax-trials = 9\nmin-time = "2s"\n')
    result = modeldyno("sweep", "s.yaml", "--until", "certain >= 90%", "--minimize", "latency.mean")
    outcome = study_of(result)

    assert [str(axis) for axis in outcome.space.axes] == ["batch_size=1,2,4"]
    assert [str(aim) for aim in outcome.goal.objectives] == ["minimize latency.mean"]
    assert [str(bound) for bound in outcome.goal.constraints] == ["throughput >= 150/s"]
    assert (outcome.seed, outcome.budget.max_trials, outcome.budget.certain) == (3, 9, 0.9)
    assert outcome.job.plan.min_time == 2.0


@pytest.mark.parametrize(
    ("bound", "code"),
    [
        ("throughput >= 1/s", 0),
        ("throughput >= 1000/s", 1),
        ("latency.p99 <= 5ms", 5),
        ("throughput >= 400/s", 5),
    ],
)
def test_the_exit_code_says_whether_anything_holds(
    modeldyno: Callable[..., CommandResult], bench: Callable[..., SimulatedTrials], bound: str, code: int
) -> None:
    """0 if a configuration holds, 1 if none does, 5 if undecided."""
    bench()
    assert modeldyno("sweep", *BATCHES, "--require", bound, "-q").code == code


@pytest.mark.parametrize(
    ("arguments", "code"), [((), 0), (("--until", "certain >= 90%"), 5), (("--until", "certain >= 95%"), 5)]
)
def test_a_sweep_that_ends_early_is_certain_of_what_it_tried_alone(
    modeldyno: Callable[..., CommandResult],
    bench: Callable[..., SimulatedTrials],
    arguments: tuple[str, ...],
    code: int,
) -> None:
    """Each sentence has the share of the space; a certainty that was asked for is undecided."""
    bench()
    space = ("--space", "batch_size=1,4,16,64", "--space", "threads=1,2", "--max-trials", "3")
    result = modeldyno("sweep", MODEL, *space, *arguments)
    printed, listed = " ".join(result.out.split()), " ".join(modeldyno("list").out.split())

    assert result.code == code
    assert re.search(r"of the 2 of [89] points that were tried", printed)
    assert re.search(r"not-explored: batch_size=\S+(?: and threads=\d)? (?:was|were) never tried", printed)
    assert "2 of 9 tried" in listed


def test_a_sweep_that_ends_undecided_says_why(
    modeldyno: Callable[..., CommandResult], bench: Callable[..., SimulatedTrials]
) -> None:
    """What ended it, and where a limit did, what would be enough; also where nothing more was measured."""
    bench()
    first = modeldyno("sweep", *BATCHES, "--max-trials", "2")
    again = modeldyno("sweep", "--resume", study_of(first).id, "--max-time", "1ms")
    ends = [" ".join(result.out.split()) for result in (first, again)]

    assert "It ended here: the limit of 2 trials is reached; raise it with --max-trials." in ends[0]
    assert "Nothing more was measured: the limit of 2 trials is reached" in ends[1]
    undecided = modeldyno("sweep", *BATCHES, "--require", "latency.p99 <= 5ms")
    assert "It ended here: no remaining trial would make the answer more certain." in " ".join(
        undecided.out.split()
    )


def test_few_trials_touch_the_values_of_every_axis(
    modeldyno: Callable[..., CommandResult], bench: Callable[..., SimulatedTrials]
) -> None:
    """Where a limit leaves time for as many as the longest axis has, each value is tried."""
    bench()
    space = ("--space", "batch_size=1,4,16,64", "--space", "threads=1,2,3,4", "--max-trials", "8")
    tried = study_of(modeldyno("sweep", MODEL, *space)).searched.measured

    assert {trial.point.get("batch_size") for trial in tried} == {1, 4, 16, 64}
    assert {trial.point.get("threads") for trial in tried} >= {1, 2, 3, 4}


def test_when_everything_fails_the_code_is_4(
    modeldyno: Callable[..., CommandResult], bench: Callable[..., SimulatedTrials]
) -> None:
    """The cause is reported, and the trials are stored."""
    bench(fails=lambda _point: FailureKind.OOM)
    result = modeldyno("sweep", *BATCHES)

    assert result.code == 4
    assert "it took too much" in result.out
    assert exit_code(study_of(result), ranking(study_of(result))) == 4
    assert "failed: out of memory" in modeldyno("show", study_of(result).id).out


def test_an_interruption_ends_with_130_and_says_how_to_go_on(
    modeldyno: Callable[..., CommandResult], bench: Callable[..., SimulatedTrials]
) -> None:
    """Completed trials are reported and stored; resuming measures the rest, and nothing twice."""

    def interrupting(point: dict[str, Any]) -> float:
        if point["batch_size"] == 2:
            signal.raise_signal(signal.SIGINT)
        return by_batch(point)

    first = bench(interrupting)
    result = modeldyno("sweep", *BATCHES)
    outcome = study_of(result)

    assert result.code == 130
    assert f"modeldyno sweep --resume {outcome.id[:6]}" in result.out
    assert len(first.jobs) == len(outcome.trials) == 2
    second = bench()
    again = modeldyno("sweep", "--resume", "--max-trials", "5")
    assert again.code == 0
    assert study_of(again).id == outcome.id
    assert len(study_of(again).trials) == 5
    assert len(second.jobs) == 3


def test_a_study_that_is_over_says_why(
    modeldyno: Callable[..., CommandResult], bench: Callable[..., SimulatedTrials]
) -> None:
    """Resuming measures nothing if the budget is spent, or nothing more can be learned."""
    bench()
    modeldyno("sweep", *BATCHES, "--max-trials", "3")
    by_trials = modeldyno("sweep", "--resume", "--max-trials", "3").out.replace("\n", " ")
    assert (
        "Nothing more was measured: the limit of 3 trials is reached; raise it with --max-trials."
        in by_trials
    )
    by_time = modeldyno("sweep", "--resume", "--max-trials", "99", "--max-time", "1ns").out.replace("\n", " ")
    assert "of 1.00 ns are spent, earlier runs of the study included" in by_time
    modeldyno("sweep", "--resume", "--max-trials", "99", "--max-time", "10m")
    again = modeldyno("sweep", "--resume", "--max-trials", "99", "--max-time", "10m").out.replace("\n", " ")
    assert "no remaining trial would make the answer more certain" in again


def test_a_study_is_ranked_anew_without_measuring(
    modeldyno: Callable[..., CommandResult], bench: Callable[..., SimulatedTrials]
) -> None:
    """Other goals give another winner from stored results; the stored study is unchanged."""
    used = bench()
    outcome = study_of(modeldyno("sweep", *BATCHES))
    made = len(used.jobs)
    result = modeldyno(
        "sweep",
        "--rerank",
        outcome.id[:6],
        "--require",
        "throughput <= 150/s",
        "--require",
        "latency.max <= 1s",
    )

    assert result.code == 0
    assert "batch_size=1) gives throughput 100/s" in result.out.replace("\n", " ")
    assert "latency.max" in result.out
    assert len(used.jobs) == made
    assert study_of(result).goal == outcome.goal
    assert "16 of" not in result.out


def test_a_winner_under_another_goal_is_verified(
    modeldyno: Callable[..., CommandResult], bench: Callable[..., SimulatedTrials]
) -> None:
    """The command that --rerank prints continues as a new study; nothing is measured twice."""
    used = bench()
    outcome = study_of(modeldyno("sweep", *BATCHES, "--max-trials", "3"))
    made = len(used.jobs)
    result = modeldyno(
        "sweep", "--rerank", outcome.id, "--objective", "throughput:2", "--require", "throughput <= 250/s"
    )
    line = next(
        line for line in result.out.splitlines() if line.startswith("To continue the search and verify it: ")
    )
    assert len(used.jobs) == made
    arguments = shlex.split(line.partition("modeldyno ")[2])
    again = modeldyno(*arguments, "--max-trials", "40")
    anew = study_of(again)

    assert arguments[:3] == ["sweep", "--resume", outcome.id]
    assert again.code == 0
    assert anew.id != outcome.id
    assert [str(o) for o in anew.goal.objectives] == ["maximize throughput:2"]
    assert [(t.point, t.result) for t in anew.trials[: len(outcome.trials)]] == [
        (t.point, t.result) for t in outcome.trials
    ]
    assert len(used.jobs) == made + len(anew.trials) - len(outcome.trials)
    best = ranking(anew).best
    assert best is not None
    assert best.verified
    assert best.point == {"batch_size": 2}
    with plugins.store() as store:
        assert store.study(outcome.id) == outcome
    assert modeldyno("rm", anew.id).code == 0  # and what both have stays
    for trial in outcome.trials:
        assert modeldyno("show", trial.result).code == 0


def test_what_a_new_goal_does_not_name_stays(
    modeldyno: Callable[..., CommandResult], bench: Callable[..., SimulatedTrials]
) -> None:
    """A bound alone changes no objective, and an objective alone no bound."""
    bench()
    bounds = ("--require", "latency.max <= 1s", "--minimize", "latency.mean", "--rank", "each-load")
    name = study_of(modeldyno("sweep", *BATCHES, *bounds)).id
    modeldyno("sweep", "--rerank", name, "--require", "throughput >= 1/s", "--json", "bound.json")
    modeldyno("sweep", "--rerank", name, "--maximize", "throughput", "--json", "aim.json")
    bound, aim = (codec_study.read(Path(each)).goal for each in ("bound.json", "aim.json"))

    assert [str(o) for o in bound.objectives] == ["minimize latency.mean"]
    assert [str(c) for c in bound.constraints] == ["throughput >= 1/s"]
    assert [str(o) for o in aim.objectives] == ["maximize throughput"]
    assert [str(c) for c in aim.constraints] == ["latency.max <= 1 s"]
    assert bound.rank is aim.rank is Rank.EACH


def test_a_goal_that_no_trial_tells_is_not_searched_on(
    modeldyno: Callable[..., CommandResult], bench: Callable[..., SimulatedTrials]
) -> None:
    """A goal of an unmeasured metric is refused, as further trials would not measure it either."""
    used = bench()
    name = study_of(modeldyno("sweep", *BATCHES, "--max-trials", "2")).id
    made = len(used.jobs)
    result = modeldyno("sweep", "--resume", name, "--minimize", "weight_bytes", "--max-trials", "9")

    assert (result.code, len(used.jobs)) == (2, made)
    assert "measured weight_bytes; start a new sweep" in result.err.replace("\n", " ")


def test_the_settings_of_a_project_are_of_sweeps_that_begin(
    modeldyno: Callable[..., CommandResult], bench: Callable[..., SimulatedTrials], tmp_path: Path
) -> None:
    """modeldyno.toml neither prevents resuming, nor changes the goal."""
    bench()
    result = study_of(modeldyno("sweep", *BATCHES, "--max-trials", "2"))
    (tmp_path / "modeldyno.toml").write_text(
        '[sweep]\nbackend = "onnxruntime"\ntrial_time = "1s"\nlatency_budget = "5ms"\n'
    )
    again = modeldyno("sweep", "--resume", result.id, "--max-trials", "4")

    assert again.code == 0
    assert study_of(again).id == result.id
    assert modeldyno("sweep", "--rerank", result.id, "--minimize", "latency.mean").code == 0


def test_results_that_are_gone_are_told(
    modeldyno: Callable[..., CommandResult], bench: Callable[..., SimulatedTrials]
) -> None:
    """A metric outside the study is unknown once its results are removed."""
    bench()
    outcome = study_of(modeldyno("sweep", *BATCHES))
    for trial in outcome.trials:
        assert modeldyno("rm", trial.result).code == 0
    result = modeldyno("sweep", "--rerank", outcome.id, "--require", "latency.max <= 1s")

    assert f"{len(outcome.trials)} of {len(outcome.trials)} trials lack a requested metric" in result.out


def test_the_document_and_the_table_are_written(
    modeldyno: Callable[..., CommandResult], bench: Callable[..., SimulatedTrials], tmp_path: Path
) -> None:
    """JSON can be read back, and has the ranking; CSV has a row for each trial."""
    bench()
    result = modeldyno("sweep", *BATCHES, "--json", "s.json", "-o", "s.csv")
    document = json.loads((tmp_path / "s.json").read_text())
    rows = list(csv.DictReader(io.StringIO((tmp_path / "s.csv").read_text())))

    assert "Saved to s.json and s.csv." in result.out
    assert document["ranking"]["rows"][0]["point"] == {"batch_size": 4}
    assert codec_study.read(tmp_path / "s.json") == study_of(result)
    assert [int(row["trial"]) for row in rows] == list(range(1, len(document["trials"]) + 1))
    assert modeldyno("show", "s.json").out in result.out.replace("\r", "")
    assert json.loads(modeldyno("show", "s.json", "--json").out)["id"] == document["id"]
    assert modeldyno("report", "s.json", "-o", "again.csv").code == 0
    assert (tmp_path / "again.csv").read_text() == (tmp_path / "s.csv").read_text()
    assert modeldyno("report", "s.json", "-o", "again.json").code == 0
    assert modeldyno("report", "s.json", "-o", "x.docx").code == 2


def test_a_page_is_written(
    modeldyno: Callable[..., CommandResult], bench: Callable[..., SimulatedTrials], tmp_path: Path
) -> None:
    """A sweep writes its page at its end, with the results of its trials from the store."""
    bench()
    assert modeldyno("sweep", *BATCHES, "-o", "s.html").code == 0
    page = (tmp_path / "s.html").read_text(encoding="ascii")

    assert "<h2>The best configurations</h2>" in page
    assert "<h2>Rank 1 in detail</h2>" in page
    assert "is not in the store" not in page


def test_standard_output_may_hold_the_document_alone(
    modeldyno: Callable[..., CommandResult], bench: Callable[..., SimulatedTrials]
) -> None:
    """With ``--json -`` nothing else is printed; without a store nothing is kept."""
    bench()
    result = modeldyno("sweep", *BATCHES, "--json", "-", "--no-store")

    assert json.loads(result.out)["kind"] == "study"
    assert "Nothing is stored yet" in modeldyno("list").out


def test_studies_are_listed_shown_and_removed(
    modeldyno: Callable[..., CommandResult], bench: Callable[..., SimulatedTrials]
) -> None:
    """Studies are listed with results; an id prefix finds one; options for a result are refused."""
    bench()
    result = study_of(modeldyno("sweep", *BATCHES))
    listed = modeldyno("list").out

    assert result.id[:6] in listed
    assert "throughput 400/s (best of all 3): batch_size=4" in " ".join(listed.split())
    assert "The best of 3 configurations" in modeldyno("show", result.id[:6]).out
    refused = modeldyno("show", result.id, "--get", "throughput")
    assert (refused.code, "--get applies to a result" in refused.err) == (2, True)
    assert modeldyno("rm", result.id[:6]).out == f"removed {result.id}\n"
    assert modeldyno("show", result.id).code == 2
    assert modeldyno("rm", result.id).code == 2


def test_the_plan_is_printed_and_nothing_is_measured(
    modeldyno: Callable[..., CommandResult], bench: Callable[..., SimulatedTrials]
) -> None:
    """The plan has the configurations, the impossible points with reasons, and the time."""
    used = bench()
    arguments = ("--space", "inter_threads=1,2", "--space", "parallel=false,true")
    result = modeldyno("sweep", MODEL, *arguments, "--dry-run", "--strategy", "grid")

    assert result.code == 0
    assert "4 points; 1 of them impossible" in result.out
    assert "The knob inter_threads has no effect without parallel=true" in result.out
    assert "Nothing was measured" in " ".join(result.out.split())
    assert used.jobs == []
    assert "Nothing is stored yet" in modeldyno("list").out


def test_the_plan_of_a_server_tells_loads(
    modeldyno: Callable[..., CommandResult], bench: Callable[..., SimulatedTrials]
) -> None:
    """Configurations and loads are counted separately; default axes are marked."""
    bench()
    result = modeldyno(
        "sweep", MODEL, "--backend", "triton", "--space", "instances=1,2", "--dry-run", "--max-time", "1m"
    )

    assert "14 points: 2 configurations at 7 loads each" in result.out
    assert "concurrency  1,2,4,8,16,32,64       7  by default" in result.out
    assert "to 60 s" in result.out.replace("\n", " ")


def test_configurations_are_written_under_names_that_last(
    modeldyno: Callable[..., CommandResult], bench: Callable[..., SimulatedTrials], tmp_path: Path
) -> None:
    """The best and the default are written as Triton directories, also by another goal."""
    bench(lambda p: 100.0 * float(p.get("instances", 1)), Configured)
    arguments = ("--backend", "triton", "--space", "instances=1,2,3", "-c", "4", "--strategy", "grid")
    result = modeldyno("sweep", MODEL, *arguments, "--export-configs", "out")
    again = modeldyno(
        "sweep", "--rerank", study_of(result).id, "--objective", "latency.max", "--export-configs", "anew"
    )
    texts = {path.parent.name: path.read_text() for path in (tmp_path / "out").rglob("config.pbtxt")}
    models = {path.relative_to(tmp_path).parts[1] for path in tmp_path.glob("out/*/1/model.onnx")}
    best = next(text for text in texts.values() if "instances: 3" in text)

    assert "Wrote out" in result.out
    assert "The model could not be written beside them" in result.out
    assert "not the model that was measured" in result.out.replace("\n", " ")
    assert not models
    assert len(texts) == 3
    assert 'name: "digits_default"\ninstances: 1\n' in texts["digits_default"]
    assert best.startswith("# instances=3")
    assert again.code == 0
    assert {p.parent.name: p.read_text() for p in (tmp_path / "anew").rglob("config.pbtxt")} == texts


def test_a_directory_with_files_of_yours_is_not_written_to(
    modeldyno: Callable[..., CommandResult], bench: Callable[..., SimulatedTrials], tmp_path: Path
) -> None:
    """It is refused before anything is measured, unless it may be overwritten."""
    used = bench(lambda p: 100.0 * float(p.get("instances", 1)), Configured)
    arguments = (
        "sweep",
        MODEL,
        "--backend",
        "triton",
        "--space",
        "instances=1,2",
        "-c",
        "4",
        "--export-configs",
        "out",
    )
    edited = tmp_path / "out" / "digits_default" / "config.pbtxt"
    edited.parent.mkdir(parents=True)
    edited.write_text("count: 99\n")
    result = modeldyno(*arguments)

    assert result.code == 2
    assert "The directory out is not empty; give another one, or add --overwrite" in result.err
    assert not used.jobs
    assert edited.read_text() == "count: 99\n"
    assert modeldyno(*arguments, "--overwrite").code == 0
    assert "instances: 1" in edited.read_text()


def test_an_ensemble_names_the_models_that_are_written_beside_it() -> None:
    """Files that are not written are unchanged."""
    parts = 'name: "double"\n', 'name: "both"\n  model_name: "double"\n  model_name: "elsewhere"\n'
    files = [Artifact(name="config.pbtxt", path="", digest="", text=text) for text in parts]
    _, ensemble = config_export._rename_steps(files, "3")

    assert ensemble.text == 'name: "both"\n  model_name: "double_3"\n  model_name: "elsewhere"\n'


def test_what_has_no_files_is_not_exported(
    modeldyno: Callable[..., CommandResult], bench: Callable[..., SimulatedTrials]
) -> None:
    """A model in a process has no configuration to write."""
    bench()
    result = modeldyno("sweep", *BATCHES, "--export-configs", "out")

    assert result.code == 2
    assert "no files to export" in result.err


def test_a_directory_is_named_for_the_model(
    modeldyno: Callable[..., CommandResult], bench: Callable[..., SimulatedTrials]
) -> None:
    """Without a name in the file, the name of the study is converted to a directory name."""
    bench()
    study = study_of(modeldyno("sweep", *BATCHES))

    assert base_name(replace(study, name="a b/c")) == "c"
    assert base_name(replace(study, name="../..")) == "model"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "needs a MODEL"),
        (("no.yaml",), "Cannot read no.yaml"),
        (("--resume", "--rerank", "a"), "exclude each other"),
        (("--rerank", "a", "--dry-run"), "exclude each other"),
        ((MODEL, "--resume"), "drop "),
        (("--resume", "--no-store"), "drop --no-store"),
        (("--resume", "--set", "a=1"), "A resumed study cannot change set"),
        (("--resume",), "no study yet"),
        (("--rerank", "abc"), "no study whose id begins with 'abc'"),
        (("--rerank", "abc", "--space", "a=1"), "measures nothing"),
        ((MODEL, "--space", "a"), "--space 'a' is not knob=value"),
        ((MODEL, "--space", "a=1", "--space", "a=2"), "--space gives a twice"),
        ((MODEL, "--set", "a"), "--set 'a' is not knob=value"),
        ((MODEL, "--until", "perhaps"), "--until 'perhaps' is not a certainty"),
        (
            (MODEL, "--until", "certain >= 200%"),
            "--until 'certain >= 200%': it must be a share between 0 and",
        ),
        ((MODEL, "--max-trials", "0"), "'--max-trials': 0 is not in the range"),
        ((MODEL, "--max-time", "soon"), "--max-time: 'soon' is not a quantity"),
        ((MODEL, "--latency-budget", "10"), "--latency-budget: '10' has no unit; write 10ms or 10s"),
        ((MODEL, "-o", "x.docx"), "No reporter writes"),
        ((MODEL, "--tag", "a"), "A study has no tags"),
        ((MODEL, "--export-configs", "d", "--no-store"), "drop --no-store"),
        ((MODEL, "--space", "batc_size=1,2"), "did you mean 'batch_size'"),
        ((MODEL, "--space", "instances=1,2"), "add --backend triton"),
        ((MODEL, "--strategy", "quik"), "did you mean 'quick'"),
        ((MODEL, "--mode", "offlin"), "'offlin' is not one of"),
    ],
)
def test_wrong_words_are_refused_in_a_sentence(
    modeldyno: Callable[..., CommandResult], arguments: tuple[str, ...], message: str
) -> None:
    """Code 2, one line, and nothing measured."""
    result = modeldyno("sweep", *arguments)

    assert (result.code, result.out) == (2, "")
    assert len(result.err.strip().splitlines()) == 1
    assert re.search(message, result.err)


def test_a_mistake_in_a_file_tells_its_line(modeldyno: Callable[..., CommandResult], tmp_path: Path) -> None:
    """The message begins with the line of the file."""
    (tmp_path / "s.yml").write_text(f"model: {MODEL}\nspace:\n  batch_size: 0,1\n")

    assert "s.yml, line 3: The knob batch_size takes a whole number from 1" in modeldyno("sweep", "s.yml").err


@pytest.mark.parametrize("option", [("--set", "threads=abc"), ("--space", "inter_threads=abc")])
def test_a_mistake_of_an_option_tells_no_line(
    modeldyno: Callable[..., CommandResult], tmp_path: Path, option: tuple[str, str]
) -> None:
    """Even if the file has other knobs and axes."""
    (tmp_path / "s.yml").write_text(f"model: {MODEL}\nset:\n  arena: true\nspace:\n  batch_size: 1,2\n")
    result = modeldyno("sweep", "s.yml", *option)

    assert result.code == 2
    assert "takes a whole number" in result.err
    assert "line" not in result.err


def test_a_list_is_no_certainty(modeldyno: Callable[..., CommandResult], tmp_path: Path) -> None:
    """It is refused in a sentence, with its line."""
    (tmp_path / "s.yml").write_text(f"model: {MODEL}\nbudget:\n  certain: [0.9]\n")

    assert "s.yml, line 3: ['0.9'] is not a quantity" in modeldyno("sweep", "s.yml").err


def test_the_schema_of_a_file_is_printed(modeldyno: Callable[..., CommandResult]) -> None:
    """The schema has every key of a sweep file; that of a result is the default."""
    assert set(json.loads(modeldyno("schema", "sweep").out)["properties"]) == set(KEYS)
    assert "result" in json.loads(modeldyno("schema").out)["title"]


@pytest.mark.timeout(300)
@pytest.mark.slow  # tests/sweeps/api/test_sweep.py sweeps one
def test_a_real_model_is_swept(modeldyno: Callable[..., CommandResult]) -> None:
    """ONNX Runtime, in child processes: the default, the search, and a verdict with its certainty."""
    pytest.importorskip("onnxruntime")
    quick = ("--trial-time", "0.3s", "--min-time", "0.1s", "--precision", "30%", "--max-trials", "4")
    result = modeldyno("sweep", MODEL, "--space", "batch_size=1,16", *quick)

    assert result.code == 0
    assert "measurements over 2 configurations" in result.out
    assert len(study_of(result).trials) == 4


def test_a_study_grows_and_keeps_its_trials(
    modeldyno: Callable[..., CommandResult], bench: Callable[..., SimulatedTrials]
) -> None:
    """More values of an axis make a new study with all trials of the first; only new points are measured."""
    bench()
    first = study_of(modeldyno("sweep", *BATCHES))
    grown = study_of(modeldyno("sweep", "--resume", first.id, "--space", "batch_size=8"))
    refused = modeldyno("sweep", "--resume", first.id, "--space", "threads=1,2")

    assert grown.id != first.id
    assert grown.trials[: len(first.trials)] == first.trials
    assert [str(axis) for axis in grown.space.axes] == ["batch_size=1,2,4,8"]
    assert 8 in {trial.point["batch_size"] for trial in grown.trials[len(first.trials) :]}
    assert refused.code == 2
    assert "does not vary threads" in refused.err


def test_offline_varies_the_batches_of_requests(modeldyno: Callable[..., CommandResult]) -> None:
    """Online varies concurrency alone; a fixed batch size stays fixed."""
    online = modeldyno("sweep", MODEL, "--mode", "online", "--dry-run").out
    offline = modeldyno("sweep", MODEL, "--mode", "offline", "--dry-run").out
    fixed = modeldyno("sweep", MODEL, "--mode", "offline", "-b", "16", "--dry-run").out

    assert "concurrency       1,2,4,8,16,32,64" in online
    assert "batch_size " not in online.partition("Axes")[2]
    assert "batch_size        1,2,4,8,16,32,64" in offline
    assert "concurrency       1,2,4 " in offline
    assert "batch_size " not in fixed.partition("Axes")[2]


def test_several_models_are_swept_and_ranked_together(
    modeldyno: Callable[..., CommandResult], bench: Callable[..., SimulatedTrials], tmp_path: Path
) -> None:
    """Each has its study; the table at the end has the best of all, and files hold all studies."""
    bench()
    other = tmp_path / "other.onnx"
    other.write_bytes(Path(MODEL).read_bytes())
    result = modeldyno(
        "sweep", *BATCHES, "--also", str(other), "--max-trials", "12", "--top-models", "2", "-o", "all.html"
    )
    table = result.out.partition("The best over 2 models")[2]
    with plugins.store() as store:
        names = {entry.name for entry in store.studies()}

    assert result.code == 0
    assert names == {"digits", "other"}
    assert "digits_2" in table or "other_2" in table
    assert len([line for line in table.splitlines() if "batch_size=" in line]) == 2
    assert "other_1" in (tmp_path / "all.html").read_text(encoding="utf-8")


def test_several_models_share_one_budget(
    modeldyno: Callable[..., CommandResult], bench: Callable[..., SimulatedTrials], tmp_path: Path
) -> None:
    """An equal share of what is left; a file gives each model keys of its own; JSON has all studies."""
    bench()
    (tmp_path / "set.yaml").write_text(
        f"models:\n  a: {{model: {MODEL}}}\n  b: {{model: {MODEL}, space: {{batch_size: [1, 2]}}}}\n"
        "space: {batch_size: [1, 2, 4, 8, 16]}\nbudget: {max_trials: 8}\nstrategy: grid\n"
    )
    documents = json.loads(modeldyno("sweep", "set.yaml", "--json", "-").out)

    assert [document["name"] for document in documents] == ["a", "b"]
    assert [len(document["trials"]) for document in documents] == [4, 4]
    assert documents[1]["space"]["axes"][0]["values"] == [1, 2]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("models: []", "'models' holds models"),
        ("models: [a.onnx]\nmodel: b.onnx", "not both"),
        ("models: {a: b.onnx}", "Below 'a' stand keys of a sweep"),
        ("models:\n  a:\n    spac: 1", "set.yaml, line 3: .*did you mean 'space'"),
        ("models:\n  a:\n    budget: {}", "set.yaml, line 3: 'budget' holds for all models"),
    ],
)
def test_a_mistake_in_a_set_of_models(
    modeldyno: Callable[..., CommandResult], tmp_path: Path, text: str, says: str
) -> None:
    """Is told with its line."""
    (tmp_path / "set.yaml").write_text(text)
    refused = modeldyno("sweep", "set.yaml")

    assert refused.code == 2
    assert re.search(says, refused.err)


def test_a_configuration_is_shown_reported_and_drawn(
    modeldyno: Callable[..., CommandResult], bench: Callable[..., SimulatedTrials], tmp_path: Path
) -> None:
    """By its number or its name; an own chart is on the page, and a wrong one is refused."""
    bench()
    study = study_of(modeldyno("sweep", *BATCHES))
    result = modeldyno("show", study.id, "--configuration", "1,default")
    modeldyno("report", "digits", "--configuration", "digits_1", "--plot", "x=batch_size,y=throughput",
              "--pictures", "pictures", "-o", "one.md")  # fmt: skip
    page = (tmp_path / "one.md").read_text(encoding="utf-8")

    assert "digits_1 is batch_size=" in result.out
    assert "digits_default is" in result.out
    assert modeldyno("show", "digits#1", "--get", "throughput").code == 0
    assert modeldyno("show", "digits_1", "--get", "throughput").code == 0
    assert "digits_2" not in page
    assert "throughput against batch_size" in page
    assert (tmp_path / "pictures" / "throughput-against-batch-size.svg").is_file()
    assert "digits_1" in modeldyno("show", study.id, "--json").out
    for arguments, says in (
        (("report", "digits", "--configuration", "9", "-o", "x.html"), "has no configuration '9'"),
        (("report", "digits", "--plot", "x=rate,y=throughput", "-o", "x.html"), "There is no metric 'rate'"),
        (("report", "digits", "--plot", "x=power.mean,y=throughput", "-o", "x.html"), "Nothing to draw as"),
        (("report", "digits#1", "--plot", "x=a,y=b", "-o", "x.html"), "this is none"),
        (("report", "digits", "digits", "--configuration", "1", "-o", "x.html"), "are of one document"),
        (("show", "digits#1", "--configuration", "1"), "applies to a study"),
        (("show", "nothing_1"), "nothing_1"),
    ):
        refused = modeldyno(*arguments)
        assert refused.code == 2
        assert says in refused.err


def test_a_report_whose_pictures_cannot_be_drawn_is_not_begun(
    modeldyno: Callable[..., CommandResult],
    bench: Callable[..., SimulatedTrials],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is missing is said before a file is written."""
    bench()
    modeldyno("sweep", *BATCHES)
    monkeypatch.setattr("modeldyno.base.plugins.missing", tuple)
    refused = modeldyno("report", "digits", "--pictures", "pictures", "-o", "one.md")

    assert refused.code == 3
    assert "needs matplotlib" in refused.err
    assert not (tmp_path / "one.md").exists()
