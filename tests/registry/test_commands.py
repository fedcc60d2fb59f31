"""The commands of the registry as a user types them, and their functions of the Python API."""

from __future__ import annotations

import json
import threading
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from sqlalchemy import NullPool, create_engine, text

import modeldyno
from modeldyno import cli
from modeldyno.base import plugins
from modeldyno.base.errors import RequestError
from modeldyno.cli import main
from modeldyno.engine.environment.device_lock import device_lock
from modeldyno.engine.environment.idle import IdleRule
from modeldyno.registry.interface import Outcome
from modeldyno.registry.records.answer import AnswerState
from modeldyno.registry.records.records import FigureState, TaskState
from modeldyno.registry.targets import target_here
from modeldyno.registry.worker import new_worker
from modeldyno.registry.worker_process import StartedWorker

if TYPE_CHECKING:
    from collections.abc import Callable

    from modeldyno.registry.interface import Registry


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str


@pytest.fixture
def type_(registry: object, capfd: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Give a function that runs ``modeldyno registry`` with words."""
    del registry

    def run(*arguments: str) -> Said:
        with pytest.raises(SystemExit) as left:
            main(arguments)
        out, err = capfd.readouterr()
        assert isinstance(left.value.code, int)
        return Said(code=left.value.code, out=out, err=err)

    return run


@pytest.fixture
def net(type_: Callable[..., Said], model: Path, measured: object) -> Callable[..., Said]:
    """Give the same, with a model that is registered and measured."""
    del measured
    assert (
        type_("registry", "add", str(model), "--no-convert", "--metric", "accuracy=76%", "--wait").code == 0
    )
    return type_


def test_a_model_that_says_no_shape_is_told_to_be_registered_with_one(
    registry: Registry, tmp_path: Path
) -> None:
    """Its measurements would all fail; with the shape they are queued again, and nothing is said."""
    path = tmp_path / "fac.py"
    path.write_text("import torch\n\n\ndef make():\n    return torch.nn.Linear(8, 4).eval()\n")
    words = ["registry", "add", f"torch:{path}:make", "--no-convert", "--no-worker"]
    unshaped = CliRunner().invoke(cli.cli, words)
    shaped = CliRunner().invoke(cli.cli, [*words, "--input", "input=batchx8"])

    assert "fac.make/1 does not say the shape of its input 'input', without which" in unshaped.stderr
    assert "such as --input input=batchx8 --name fac.make" in unshaped.stderr
    assert (unshaped.exit_code, shaped.exit_code, shaped.stderr) == (0, 0, "")
    assert [spec.shape for spec in registry.versions("fac.make")[0].measured_with] == [("batch", 8)]


def test_registering_starts_a_worker_where_none_is(
    type_: Callable[..., Said], registry: Registry, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not if it is unwanted, if one is there, or if nothing is queued."""
    started = StartedWorker(pid=7, log=Path("worker.log"))
    monkeypatch.setattr("modeldyno.cli.actions.registry.start_worker", lambda: started)
    first = type_("registry", "add", str(model), "--no-worker").out
    tasks = [task.id for task in registry.tasks()]
    registry.change_tasks(tasks, TaskState.CANCELLED, "me")
    second = type_("registry", "add", str(model)).out
    third = type_("registry", "add", str(model)).out

    assert "no worker is running: start one with modeldyno worker" in first
    assert (
        "a worker was started, and ends when nothing is left to do.\nIts process is 7, its log worker.log"
        in second
    )
    assert "queued" not in third


def test_an_empty_registry_says_how_to_begin(type_: Callable[..., Said]) -> None:
    result = type_("registry", "list")

    assert result.code == 0
    assert "modeldyno registry add MODEL" in result.out


def test_without_a_worker_add_says_how_to_start_one(type_: Callable[..., Said], model: Path) -> None:
    result = type_("registry", "add", str(model), "--no-convert")

    assert "net/1 is registered: onnx" in result.out
    assert "3 tasks queued, and no worker is running: start one with modeldyno worker" in result.out


def test_add_with_wait_shows_the_figures(type_: Callable[..., Said], model: Path, measured: object) -> None:
    del measured
    result = type_("registry", "add", str(model), "--no-convert", "--wait")

    assert "1 usable variant and 3 fresh figures" in " ".join(result.out.split())
    assert "batch 32" in result.out


def test_list_has_what_was_registered(net: Callable[..., Said]) -> None:
    result = net("registry", "list", "NE")

    assert "net" in result.out
    assert "onnx" in result.out
    assert "No models match this filter" in net("registry", "list", "resnet").out


def test_a_json_document_has_everything(net: Callable[..., Said]) -> None:
    document = json.loads(net("registry", "show", "net", "--json", "-").out)

    assert document["version"]["metrics"] == {"accuracy": 0.76}
    assert [figure["figure"]["state"] for figure in document["figures"]] == ["fresh"] * 3


def test_each_version_is_listed_with_its_best_figures(net: Callable[..., Said], model: Path) -> None:
    """Also one that is not measured yet, or whose figures are stale."""
    model.write_bytes(b"other weights")
    net("registry", "add", str(model), "--no-convert")
    table = net("registry", "show", "net/1").out.partition("Versions, each by its best figures")[2]
    (speed,) = json.loads(net("registry", "show", "net", "--json", "-").out)["speeds"]

    assert [line.split()[0] for line in table.splitlines() if "net/" in line] == ["net/2", "net/1"]
    assert "not measured" in table
    assert (speed["number"], speed["state"], speed["p99"]) == (1, "fresh", speed["p50"])
    assert speed["p50"] == pytest.approx(2e-3)
    with plugins.store() as store:
        store.registry.put_figures(
            [replace(f, state=FigureState.STALE, why="old") for f in store.registry.figures("net", 1)]
        )
    (speed,) = json.loads(net("registry", "show", "net", "--json", "-").out)["speeds"]
    assert (speed["state"], speed["p50"], speed["rate"]) == ("stale", None, None)


def test_an_answer_names_variant_replicas(net: Callable[..., Said]) -> None:
    result = net("registry", "answer", "net", "--require", "latency.p50 <= 20ms", "--demand", "1/s")

    text = " ".join(result.out.split())
    assert result.code == 0
    assert "Run net/1 as source, batch 1" in text or "Run net/1 as source, batch 8" in text
    assert "1 replica for 1.00/s" in text


@pytest.mark.parametrize(
    ("bound", "code", "phrase"),
    [
        ("latency.p50 <= 1us", 1, "each surely breaks a bound"),
        ("accuracy >= 0.5", 5, "Unknown: no fresh figure of net surely holds"),
    ],
)
def test_the_exit_code_tells_what_is_known(
    net: Callable[..., Said], bound: str, code: int, phrase: str
) -> None:
    result = net("registry", "answer", "net", "--require", bound)

    assert result.code == code
    assert phrase in " ".join(result.out.split())


def test_an_alias_moves_and_comes_back(net: Callable[..., Said]) -> None:
    assert "net@champion names net/1" in net("registry", "alias", "net/1", "champion").out
    assert "names nothing now" in net("registry", "alias", "net", "champion", "--remove").out
    assert "names net/1" in net("registry", "alias", "net", "champion", "--rollback").out
    assert "net@champion names net/1" in net("registry", "alias", "net").out


def test_the_history_says_what_was_changed(type_: Callable[..., Said], model: Path) -> None:
    """In a few words, with how to see what does not fit; of what never was it says so."""
    type_("registry", "add", str(model), "--no-convert", "--no-profile")
    type_("registry", "alias", "net/1", "champion")
    type_("registry", "update", "net", "--label", "team=vision")
    type_("registry", "alias", "net", "champion", "--remove")

    history = type_("registry", "history", "net").out
    details = ("@champion: new to /1", "labels {'team': 'vision'}", "@champion: /1 to nothing")
    assert sorted(map(history.index, details)) == [history.index(detail) for detail in details]
    assert "There are earlier ones; to see them: --limit 10" in type_("registry", "history", "-n", "2").err
    unknown = type_("registry", "history", "nosuch")
    assert (unknown.code, unknown.err.split(";")[0]) == (2, "modeldyno: Nothing has happened to 'nosuch'")


def test_whoever_removes_a_version_is_told_of_its_aliases(type_: Callable[..., Said], model: Path) -> None:
    """They are what others run by."""
    type_("registry", "add", str(model), "--no-convert", "--no-profile")
    type_("registry", "alias", "net/1", "champion")

    removed = type_("registry", "rm", "net/1")
    assert removed.out == (
        "net/1 is removed, and @champion names nothing now; its results stay in the store\n"
    )


def test_the_history_is_whole_until_somebody_changes_it(net: Callable[..., Said], url: str) -> None:
    assert "No event was changed" in net("registry", "history", "--verify").out
    address = url.replace("postgresql://", "postgresql+psycopg://")
    with create_engine(address, poolclass=NullPool).begin() as connection:
        connection.execute(text("UPDATE events SET actor = 'somebody else' WHERE id = 2"))

    result = net("registry", "history", "net", "--verify")
    assert result.code == 1
    assert "Event 2 was changed" in result.err


def test_tasks_are_listed_cancelled_and_queued_again(type_: Callable[..., Said], model: Path) -> None:
    type_("registry", "add", str(model), "--no-convert")

    assert "1 task cancelled" in type_("registry", "tasks", "--cancel", "1").out
    assert "No task cancelled: only one that is" in type_("registry", "tasks", "--cancel", "1").out
    assert "1 task queued" in type_("registry", "tasks", "--retry", "1").out
    assert "No task queued: only one that has ended" in type_("registry", "tasks", "--retry", "1").out
    assert "net/1 source: batch 8" in type_("registry", "tasks", "net").out


@pytest.mark.usefixtures("registry")
def test_all_tasks_that_have_failed_are_queued_again_at_once(
    type_: Callable[..., Said], model: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many they are; of one model, or of all."""
    monkeypatch.setattr("modeldyno.registry.changes._PAGE", 2)
    assert "No task has failed." in type_("registry", "tasks", "--failed").out
    type_("registry", "add", str(model), "--no-convert")
    worker = new_worker(target_here())
    while (task := registry.claim(worker)) is not None:
        registry.finish(task, Outcome(state=TaskState.FAILED, why="out of memory"), "me")

    listed = type_("registry", "tasks", "net", "--failed").out
    wrong = type_("registry", "tasks", "--retry")
    queued = type_("registry", "tasks", "net", "--retry", "--failed").out

    assert listed.count("out of memory") == 3
    assert "No worker is running" not in listed
    assert (wrong.code, "write --retry --failed for all that have failed" in wrong.err) == (2, True)
    assert "3 tasks queued" in queued
    assert queued.count("net/1 source") == 3
    assert "No task queued" in type_("registry", "tasks", "--retry", "999").out
    assert modeldyno.registry.tasks(failed=True) == ()
    assert len(modeldyno.registry.tasks(failed=True, retry=True)) == 3
    with pytest.raises(RequestError, match="failed=True"):
        modeldyno.registry.tasks(retry=True)


def test_files_come_out_again(net: Callable[..., Said], tmp_path: Path) -> None:
    result = net("registry", "get", "net", str(tmp_path / "copy"))

    assert result.code == 0
    assert (tmp_path / "copy" / "net.onnx").read_bytes() == b"weights"


MISTAKES = (
    (("add",), "Name the model to register"),
    (("show", "nothing"), "There is no registered model 'nothing'; known: net."),
    (("show", "net@prod"), "There is no alias of net 'prod'"),
    (("show", "net/7"), "net has no version 7"),
    (("show", "../etc/passwd"), "names no registered model"),
    (("rm", "net"), "name the one to remove, such as net/1"),
    (("update", "net", "--metric", "accuracy=good"), "The metric accuracy=good is no number"),
    (("update", "net", "--policy", "x"), "There is no policy 'x'"),
    (("update", "net", "--policy", "x.yaml"), "store it with `modeldyno registry policy -f x.yaml`"),
    (("answer", "net", "--on", "moon"), "There is no target 'moon'"),
    (("policy", "-f", "missing.yaml"), "Cannot read missing.yaml"),
    (("policy", "nightly", "--remove"), "There is no stored policy 'nightly'"),
    (("policy", "default", "--remove"), "The policy default is the built-in one"),
    (("policy", "--remove"), "Name the policy to remove."),
    (("policy", "net", "-f", "net.yaml", "--remove"), "do one of them"),
)


def test_a_mistake_is_one_sentence(net: Callable[..., Said]) -> None:
    for arguments, sentence in MISTAKES:
        result = net("registry", *arguments)

        assert result.code == 2, arguments
        assert sentence in result.err
        assert "Traceback" not in result.err


def test_a_policy_is_removed_when_no_version_has_it(net: Callable[..., Said], tmp_path: Path) -> None:
    file = tmp_path / "nightly.yaml"
    file.write_text("batch_sizes: [2]\n")
    net("registry", "policy", "-f", str(file))
    net("registry", "update", "net", "--policy", "nightly")

    refused = net("registry", "policy", "nightly", "--remove")
    assert refused.code == 2
    assert "net/1 has the policy nightly; give another one first" in refused.err

    assert net("registry", "update", "net", "--policy", "default").code == 0
    removed = net("registry", "policy", "nightly", "--remove")
    assert (removed.code, removed.out) == (0, "The policy nightly is removed\n")
    assert "nightly" not in net("registry", "policy").out
    assert "policy.removed" in net("registry", "history").out
    assert net("registry", "history", "--verify").code == 0


def test_a_stored_default_gives_way_to_the_built_in_one(net: Callable[..., Said], tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("name: default\nbatch_sizes: [2]\n")
    net("registry", "policy", "-f", str(file))
    assert modeldyno.registry.policy().batch_sizes == (2,)

    removed = net("registry", "policy", "default", "--remove")

    assert "is removed; the built-in one is back. In 1 version with it" in removed.out
    assert modeldyno.registry.policy().batch_sizes == (1, 8, 32)


@pytest.mark.usefixtures("registry")
def test_a_policy_is_removed_from_python(tmp_path: Path) -> None:
    file = tmp_path / "nightly.yaml"
    file.write_text("batch_sizes: [2]\n")
    stored = modeldyno.registry.policy(file=file)

    assert modeldyno.registry.policy("nightly", remove=True) == stored
    with pytest.raises(RequestError, match="There is no policy 'nightly'"):
        modeldyno.registry.policy("nightly")


@pytest.mark.usefixtures("measured", "registry")
def test_the_same_from_python(model: Path, tmp_path: Path) -> None:
    version = modeldyno.registry.add(model, metrics={"accuracy": 0.76}, convert=False)
    modeldyno.registry.work(once=True, idle=IdleRule(samples=0))
    modeldyno.registry.alias("net/1", "champion")

    assert modeldyno.registry.retrieve("net") == (version,)
    assert modeldyno.registry.retrieve(framework="torch") == ()
    assert modeldyno.registry.retrieve("other") == ()
    assert (
        modeldyno.registry.retrieve("net@champion", version=1)
        == modeldyno.registry.retrieve("net/1")
        == (version,)
    )
    assert modeldyno.registry.retrieve("net@champion", version=2) == ()
    assert [entry.name for entry in modeldyno.registry.list()] == ["net"]
    assert modeldyno.registry.answer("net@champion", "latency.p50 <= 20ms").state is AnswerState.FOUND
    assert len(modeldyno.registry.show("net").figures) == 3
    assert {task.state for task in modeldyno.registry.tasks(ended=True)} == {TaskState.DONE}
    assert modeldyno.registry.get("net", tmp_path / "copy").name == "net.onnx"
    assert modeldyno.registry.history("net", verify=True)
    assert modeldyno.registry.policy().name == "default"
    assert modeldyno.registry.update("net", task="detection").task == "detection"
    modeldyno.registry.rm("net/1")
    with pytest.raises(RequestError, match="has no version"):
        modeldyno.registry.show("net")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--window", "22-06"), "'22-06' is no time of day; write 22:00-06:00"),
        (("--never-on", "card 1"), "'card 1' is no name of a device; write cpu, or gpu:0"),
        (("--never-on", "cpu"), "cpu is a device that is never to be used here"),
    ],
)
def test_what_a_worker_cannot_keep_to_is_refused(
    type_: Callable[..., Said], arguments: tuple[str, str], message: str
) -> None:
    result = type_("worker", "--once", *arguments)

    assert result.code == 2
    assert message in result.err


def test_a_device_that_is_not_here_is_refused(type_: Callable[..., Said]) -> None:
    result = type_("worker", "--device", "gpu:9", "--once")

    assert result.code == 2
    assert "There is no device 'cuda:9'; known: all, cpu" in result.err


def test_a_webhook_is_added_listed_and_removed(net: Callable[..., Said]) -> None:
    added = net("registry", "webhook", "https://example.org/hook", "--kind", "alias.*", "--model", "net")
    assert "Webhook 1 is told of alias.*" in added.out
    net("registry", "alias", "net/1", "champion")

    listed = net("registry", "webhook")
    assert "https://example.org" in listed.out
    assert [hook.kinds for hook in modeldyno.registry.webhook()] == [("alias.*",)]
    assert "Webhook 1 is removed" in net("registry", "webhook", "--remove", "1").out
    assert net("registry", "webhook", "ftp://example.org").code == 2


@pytest.mark.usefixtures("registry")
def test_a_version_of_a_live_object_names_its_class(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("modeldyno.registry.api._save_live_object", lambda *_: model)

    version = modeldyno.registry.add(Said(code=0, out="", err=""), labels={"team": "vision"}, convert=False)

    assert version.labels == {"class": f"{Said.__module__}.Said", "team": "vision"}


def test_a_command_by_hand_waits_for_a_worker_that_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And goes on beside one that takes too long."""
    monkeypatch.setattr("modeldyno.engine.environment.device_lock._folder", lambda: tmp_path)
    with ExitStack() as worker:
        assert worker.enter_context(device_lock("cpu", "modeldyno worker: net/1 source: batch 1")) is None
        ending = threading.Timer(0.5, worker.close)
        ending.start()
        with cli._hold_device("profile"), device_lock("cpu", "another") as holder:
            assert str(holder).startswith("modeldyno profile (pid ")
        ending.join()
    assert capsys.readouterr().err.startswith("Waiting for modeldyno worker: net/1 source: batch 1 (pid ")

    monkeypatch.setattr(cli, "_PATIENCE", 0.0)
    with device_lock("cpu", "modeldyno worker: net/1 source: batch 1"), cli._hold_device("profile"):
        pass
    assert "still measures; the figures disturb each other" in capsys.readouterr().err


def test_a_version_is_measured_next(net: Callable[..., Said], registry: Registry) -> None:
    """What was measured is measured again; the same measurement is queued once."""
    before = registry.tasks(states=(TaskState.DONE,))
    first = net("registry", "measure", "net", "--no-worker")
    (task,) = registry.tasks(states=(TaskState.QUEUED,))
    again = modeldyno.registry.measure("net/1")

    assert first.out.startswith(f"net/1 as source is queued before everything else: task {task.id}\n")
    assert "1 task queued, and no worker is running" in first.out
    assert (again.task.id, again.new) == (task.id, False)
    assert "was queued already" in net("registry", "measure", "net", "--no-worker").out

    assert net("registry", "measure", "net", "--wait", "-b", "2").code == 0
    done = registry.tasks(states=(TaskState.DONE,))
    assert {one.id for one in done} > {one.id for one in before} | {task.id}
    newest = max(done, key=lambda one: one.id)
    assert newest.measure is not None
    assert newest.measure.settings == {"batch_size": 2}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("nowhere",), "nowhere"),
        (("net", "--recipe", "cube"), "cube"),
        (("net", "--target", "moon"), "moon"),
        (("net", "-b", "70000"), "A batch has 1 to 65536 samples"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    net: Callable[..., Said], words: tuple[str, ...], sentence: str
) -> None:
    """A sentence names what is not there."""
    refused = net("registry", "measure", *words, "--no-worker")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert sentence in refused.err
