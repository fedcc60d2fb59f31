from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import select, update
from tests.support.registry import DIGEST, a_measurement
from tests.support.sample_registry import a_worker

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.identity import actor
from modeldyno.base.job.model_ref import ModelIdentity
from modeldyno.base.job.version_name import VersionName
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.cli import main
from modeldyno.engine.runtime.identify import IdentifiedModel
from modeldyno.profiling.request import Request
from modeldyno.registry import register as registering
from modeldyno.registry import weights
from modeldyno.registry.changes import (
    PolicyChange,
    change_alias,
    copy_files,
    remove_version,
    store_policy,
    update_version,
)
from modeldyno.registry.figures import current_figures
from modeldyno.registry.overview import version_overview
from modeldyno.registry.policies import find_policy, read_policy, tasks_missing_on
from modeldyno.registry.records.policy import Policy
from modeldyno.registry.records.records import OPEN, TaskKind, TaskState
from modeldyno.registry.register import Registration, first_tasks, located, read_registration, register
from modeldyno.registry.targets import target_here
from modeldyno.registry.views import version as version_view
from modeldyno.stores.schema import POLICIES

if TYPE_CHECKING:
    from pathlib import Path

    from modeldyno.registry.interface import Registry
    from modeldyno.registry.records.records import Version


def added(registry: Registry, path: Path, **options: object) -> Version:
    return register(Registration(model=str(path), **options), registry).version  # type: ignore[arg-type]


def test_a_model_gets_the_name_of_its_file_and_the_number_1(registry: Registry, model: Path) -> None:
    assert added(registry, model).name == "net/1"


def test_the_same_content_is_the_same_version(registry: Registry, model: Path) -> None:
    first = register(Registration(model=str(model)), registry)
    again = register(Registration(model=str(model)), registry)

    assert (first.new, again.new) == (True, False)
    assert again.version == first.version
    assert again.queued == 0


def test_a_server_is_no_version_of_its_model(registry: Registry) -> None:
    """Another model may answer there tomorrow; it became the newest version of what it serves today."""
    with pytest.raises(RequestError, match=r"127\.0\.0\.1:9#net is a server, which keeps no version"):
        register(Registration(model="http://127.0.0.1:9#net"), registry)


def test_other_content_is_the_next_version(registry: Registry, model: Path) -> None:
    added(registry, model)
    model.write_bytes(b"other weights")

    assert added(registry, model).number == 2


def test_a_taken_number_is_refused_with_the_next_free_one(registry: Registry, model: Path) -> None:
    added(registry, model)
    model.write_bytes(b"other weights")

    with pytest.raises(RequestError, match=r"net/1 is another model .* the next free one, 2"):
        added(registry, model, number=1)


def test_its_files_are_kept_although_the_original_changes(registry: Registry, model: Path) -> None:
    version = added(registry, model)
    model.write_bytes(b"changed in place")

    path = weights.fetch(version, weights.place(registry.weights))
    assert path.read_bytes() == b"weights"


def test_without_a_copy_it_is_used_where_it_is(registry: Registry, model: Path) -> None:
    version = added(registry, model, copy=False)

    assert version.files == ()
    assert located(version, registry).locator == str(model)


def test_a_policy_that_is_not_there_is_refused_before_anything_is_stored(
    registry: Registry, model: Path
) -> None:
    with pytest.raises(UnknownName, match="policy 'nightly'"):
        added(registry, model, policy="nightly")
    assert list(registry.models()) == []


def test_it_queues_each_batch_size_of_the_policy_for_this_machine(registry: Registry, model: Path) -> None:
    version = added(registry, model, convert=False)

    tasks = registry.tasks(model=version.model)
    assert [task.measure.settings["batch_size"] for task in tasks if task.measure] == [1, 8, 32]
    assert len({task.target for task in tasks}) == 1


def test_a_path_in_the_folder_of_modelci_says_name_number_and_task(
    registry: Registry, model: Path, tmp_path: Path
) -> None:
    path = tmp_path / "ResNet50" / "onnx-none" / "image_classification" / "3.onnx"
    path.parent.mkdir(parents=True)
    path.write_bytes(model.read_bytes())

    version = added(registry, path)

    assert (version.name, version.task) == ("ResNet50/3", "image classification")
    assert version.labels == {"framework": "onnx", "engine": "none"}


MODELCI = """\
weight: net.onnx
architecture: ResNet50
framework: PyTorch
engine: ONNX
version: 2
dataset: ImageNet
task: Image_Classification
metric: {acc: 0.76}
inputs:
  - {name: input, shape: [-1, 3, 224, 224], dtype: TYPE_FP32, format: FORMAT_NCHW}
outputs:
  - {name: output, shape: [-1, 1000], dtype: TYPE_FP32}
convert: true
profile: false
"""


def test_a_file_of_modelci_is_taken_as_it_is(registry: Registry, model: Path, tmp_path: Path) -> None:
    file = tmp_path / "resnet50.yml"
    file.write_text(MODELCI.replace("net.onnx", str(model)))

    version = register(read_registration(file, {}), registry).version

    assert (version.name, version.task, version.dataset) == ("ResNet50/2", "image classification", "ImageNet")
    assert version.metrics == {"acc": 0.76}
    assert version.labels == {"framework": "PyTorch", "engine": "ONNX"}
    (measured_with,), (output,) = version.measured_with, version.outputs
    assert (measured_with.name, measured_with.shape) == ("input", ("batch", 3, 224, 224))
    assert (output.name, output.shape, output.dtype) == ("output", ("batch", 1000), "float32")
    assert version.layouts == {"input": "NCHW"}
    assert registry.tasks(model="ResNet50") != []
    shown = str([*version_view.blocks(version_overview(registry, VersionName(model="ResNet50")))])
    assert "input batch x 3 x 224 x 224 float32 NCHW" in shown, shown
    assert "output batch x 1000 float32" in shown


def test_an_archive_of_torchscript_in_the_folder_of_modelci_is_one(
    registry: Registry, model: Path, tmp_path: Path
) -> None:
    """It is 1.zip there, and so is a SavedModel."""
    path = tmp_path / "Net" / "PyTorch-TORCHSCRIPT" / "Segmentation" / "1.zip"
    path.parent.mkdir(parents=True)
    path.write_bytes(model.read_bytes())

    version = added(registry, path)

    assert (version.name, version.reference) == ("Net/1", f"torchscript:{path}")
    assert version.task == "segmentation"
    by_scheme = Registration(model=f"torchscript:{path}")
    assert register(by_scheme, registry).version.name == "Net/1"


def test_a_number_is_no_name(registry: Registry, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list would show it as a version."""
    identify = vars(registering)["identify_model"]

    def called_one(ref: Any, **options: Any) -> IdentifiedModel:
        identified: IdentifiedModel = identify(ref, **options)
        return replace(identified, identity=replace(identified.identity, name="1"))

    monkeypatch.setattr(registering, "identify_model", called_one)
    with pytest.raises(RequestError, match="file is called 1, which is no name; say it with `name`"):
        added(registry, model)
    assert added(registry, model, name="seven").name == "seven/1"


def test_its_keys_are_the_words_of_the_command(tmp_path: Path) -> None:
    file = tmp_path / "model.yaml"
    file.write_text("model: net.onnx\nversion: 3\nmetrics: {accuracy: 0.76}\nconvert: no\n")

    request = read_registration(file, {"task": "classification"})

    assert request == Registration(
        model="net.onnx", number=3, metrics={"accuracy": 0.76}, convert=False, task="classification"
    )


def test_a_word_of_the_command_line_comes_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "model.yaml"
    file.write_text("model: net.onnx\nname: one\n")

    assert read_registration(file, {"name": "two"}).name == "two"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("model: net.onnx\nweight: b.onnx", "line 2: 'weight' says again what 'model' says; leave one"),
        ("models: net.onnx", "line 1: There is no key of a registration 'models'; did you mean 'model'?"),
        ("model: a\nversion: one", "line 2: version is a number from 1, not 'one'"),
        ("model: a\ncopy: perhaps", "line 2: copy is yes or no, not 'perhaps'"),
        ("model: a\nmetrics: 0.7", "line 2: metrics is a table"),
        ("name: a", "names no model"),
    ],
)
def test_a_mistake_in_a_registration_is_told_with_its_line(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "model.yaml"
    file.write_text(text)

    with pytest.raises(RequestError, match=".*".join(map(_escaped, sentence.split("...")))):
        read_registration(file, {})


def _escaped(text: str) -> str:
    return text.replace("?", r"\?").replace(".", r"\.")


def test_what_a_file_leaves_out_is_as_in_the_built_in_policy(registry: Registry, tmp_path: Path) -> None:
    file = tmp_path / "nightly.yaml"
    file.write_text("convert: []\nbatch_sizes: [1, 4]\nmax_age: 7d\nrequire: latency.p99 <= 20ms\n")

    policy = read_policy(file)
    registry.put_policy(policy, "me")

    assert find_policy(registry, "nightly") == policy
    assert policy.batch_sizes == (1, 4)
    assert policy.max_age == 7 * 86400
    assert policy.require == ("latency.p99 <= 20 ms",)
    assert policy.probes == find_policy(registry, "default").probes
    assert policy.tolerance is None


def test_a_link_out_of_a_folder_is_not_copied(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever gets the version would get a file that is no part of it; used where it is, it may be a link."""
    folder = tmp_path / "net"
    folder.mkdir()
    (tmp_path / "secret").write_text("mine")
    (folder / "config.json").write_text("{}")
    (folder / "extra").symlink_to("../secret")

    def identify(*_: Any, **__: Any) -> IdentifiedModel:
        return IdentifiedModel(
            identity=ModelIdentity(name="net", digest=DIGEST, framework="torch"),
            inputs=(),
            kind="torch",
            backend="torch",
            files=tuple(str(folder / name) for name in ("config.json", "extra")),
        )

    monkeypatch.setattr("modeldyno.registry.register.identify_model", identify)
    with pytest.raises(RequestError, match=r"extra is a link that leads out of its folder, to .*/secret"):
        added(registry, f"hf:{folder}")  # type: ignore[arg-type] # a reference
    assert not list(tmp_path.rglob("sha256/*/*"))

    assert added(registry, f"hf:{folder}", copy=False).files == ()  # type: ignore[arg-type] # as above


def test_a_policy_that_cannot_be_read_stops_nothing_else(
    registry: Registry, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is listed with why, the versions that have it are judged by the built-in one, and it is replaced."""
    registry.put_policy(Policy(name="odd"), "me")
    version = register(Registration(model=str(model), policy="odd"), registry).version
    with registry._changing() as connection:  # type: ignore[attr-defined] # as an earlier ModelDyno wrote it
        document = connection.scalar(select(POLICIES.c.document))
        broken = document.replace(b'"max_time":20.0', b'"max_time":null')
        connection.execute(update(POLICIES).values(document=broken))

    with pytest.raises(SystemExit):
        main(("registry", "policy"))
    assert "cannot be read  Expected `float`, got `null` - at `$.max_time`" in capsys.readouterr().out
    with pytest.raises(RequestError, match=r"The policy odd cannot be read \(Expected"):
        find_policy(registry, "odd")
    assert register(Registration(model=str(model), name="other"), registry).new
    assert current_figures(registry, version.model) == []
    assert not any(task.model == version.model for task in tasks_missing_on(registry, target_here().id))

    file = tmp_path / "odd.yaml"
    file.write_text("max_time: 5s\n")
    store_policy(registry, read_policy(file))

    assert find_policy(registry, "odd").max_time == 5.0


def test_a_tolerance_in_a_policy_is_kept_with_who_gave_it(tmp_path: Path) -> None:
    file = tmp_path / "loose.yaml"
    file.write_text("tolerance: 1e-3\n")

    assert read_policy(file).tolerance == 1e-3
    assert read_policy(file).tolerated_by == actor()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("batches: [1]", "line 1: There is no key of a policy 'batches'"),
        ("batch_sizes: [0]", "line 1: '.*' is no list of numbers of 1 or more"),
        ("tolerance: 2", "line 1: A tolerance of 2 is none"),
        ("tolerated_by: ada", "line 1: There is no key of a policy 'tolerated_by'"),
        ("serve: tritton", "line 1: There is no backend 'tritton'; did you mean 'triton'"),
        ("require: latency.p99 <= 20 apples", "line 1: "),
    ],
)
def test_a_mistake_in_a_policy_is_told_with_its_line(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "nightly.yaml"
    file.write_text(text)

    with pytest.raises(RequestError, match=sentence):
        read_policy(file)


def test_metrics_and_labels_are_added(registry: Registry, model: Path) -> None:
    added(registry, model, metrics={"accuracy": 0.7}, labels={"team": "a"})

    changed = update_version(
        registry,
        "net/1",
        texts={"task": "detection", "dataset": None},
        metrics={"f1": 0.5},
        labels={"team": "b"},
    )

    assert changed.metrics == {"accuracy": 0.7, "f1": 0.5}
    assert changed.labels == {"team": "b"}
    assert registry.version(VersionName.parse("net")).task == "detection"


def test_another_policy_replaces_the_tasks_of_the_one_before(registry: Registry, model: Path) -> None:
    """Those that wait: what is being done goes on."""
    added(registry, model)
    registry.put_policy(Policy(name="nightly", batch_sizes=(1, 4), max_time=3.0), "me")
    leased = registry.claim(a_worker(target=target_here().id))
    assert leased is not None

    changed = update_version(registry, "net/1", texts={"policy": "nightly"}, metrics={}, labels={})

    left = registry.tasks(states=tuple(OPEN), model="net")
    expected = {task.key for task in first_tasks(changed, find_policy(registry, "nightly"), registry)}
    assert {task.key for task in left} - {leased.key} == expected - {leased.key}
    assert registry.tasks(states=(TaskState.CANCELLED,), model="net")


def test_a_policy_that_is_stored_again_replaces_the_tasks_of_its_earlier_text(
    registry: Registry, model: Path
) -> None:
    """Of the versions that have it; what one was registered without is not queued by this."""
    nightly = Policy(name="nightly", batch_sizes=(1, 4), convert=())
    assert store_policy(registry, nightly).versions == 0
    version = added(registry, model, policy="nightly")
    model.with_name("other.onnx").write_bytes(b"other weights")
    added(registry, model.with_name("other.onnx"), policy="nightly", convert=False, profile=False)
    waiting = registry.tasks(states=tuple(OPEN), model="net")

    changed = replace(nightly, batch_sizes=(4, 16))
    assert store_policy(registry, changed) == PolicyChange(versions=2, queued=1, cancelled=1)

    left = registry.tasks(states=tuple(OPEN), model="net")
    assert {task.key for task in left} == {task.key for task in first_tasks(version, changed, registry)}
    assert len({task.id for task in left} & {task.id for task in waiting}) == 1
    assert registry.tasks(model="net", number=2) == []
    assert store_policy(registry, changed) == PolicyChange()


def test_a_version_without_conversions_gets_none_by_a_new_text_of_its_policy(
    registry: Registry, model: Path
) -> None:
    """It was registered so; its measurements are those of the new text."""
    nightly = Policy(name="nightly", batch_sizes=(1,), convert=("onnx-fp16",))
    store_policy(registry, nightly)
    added(registry, model, policy="nightly", convert=False)

    assert store_policy(registry, replace(nightly, batch_sizes=(4,))).queued == 1

    kinds = {task.kind for task in registry.tasks(states=tuple(OPEN), model="net")}
    assert kinds == {TaskKind.PROFILE}


def test_a_text_that_no_list_can_show_is_refused(registry: Registry, model: Path) -> None:
    """A task, a data set or a label of thousands of characters, and hundreds of labels, by both ways."""
    long = "x" * 3000
    for words in ({"task": long}, {"dataset": long}, {"labels": {"a": long}}, {"labels": {long: "a"}}):
        with pytest.raises(RequestError, match=r"has 3,00\d characters; write up to 2,000"):
            added(registry, model, **words)
    version = added(registry, model, labels={f"{number}": "" for number in range(60)})
    with pytest.raises(RequestError, match="120 labels are too many; a version has up to 100"):
        update_version(
            registry, version.name, texts={}, metrics={}, labels={f"b{number}": "" for number in range(60)}
        )
    assert len(registry.version(VersionName.parse("net")).labels) == 60


def test_an_update_of_nothing_is_refused(registry: Registry, model: Path) -> None:
    added(registry, model)

    with pytest.raises(RequestError, match="Nothing is to be changed"):
        update_version(registry, "net", texts={}, metrics={}, labels={})


def test_an_alias_goes_back_to_what_it_named_before(registry: Registry, model: Path) -> None:
    added(registry, model)
    model.write_bytes(b"other weights")
    added(registry, model)
    change_alias(registry, "net/1", "champion")
    change_alias(registry, "net/2", "champion")

    move = change_alias(registry, "net", "champion", rollback=True)

    assert (move.before, move.after) == (2, 1)
    assert registry.version(VersionName.parse("net@champion")).number == 1
    assert [m.after for m in registry.alias_moves("net", "champion")] == [1, 2, 1]


def test_an_alias_needs_a_version(registry: Registry, model: Path) -> None:
    added(registry, model)

    with pytest.raises(RequestError, match="name the one that champion shall be: net/1"):
        change_alias(registry, "net", "champion")


def test_a_removal_needs_the_number(registry: Registry, model: Path) -> None:
    added(registry, model)

    with pytest.raises(RequestError, match="name the one to remove"):
        remove_version(registry, "net")


def test_the_number_of_a_removed_version_is_not_given_again(registry: Registry, model: Path) -> None:
    added(registry, model)
    remove_version(registry, "net/1")

    assert added(registry, model).number == 2


def test_the_files_of_a_version_are_copied_to_a_new_folder(
    registry: Registry, model: Path, tmp_path: Path
) -> None:
    added(registry, model)

    _, path = copy_files(registry, "net", tmp_path / "new")

    assert path == tmp_path / "new" / "net.onnx"
    assert path.read_bytes() == b"weights"
    with pytest.raises(RequestError, match="is there already"):
        copy_files(registry, "net", tmp_path / "new")


def test_results_that_were_there_before_belong_to_the_version(registry: Registry, model: Path) -> None:
    earlier = a_measurement(Request(model=str(model), settings={}, plan=Plan()))
    with plugins.store() as store:
        store.put(earlier, headline="earlier")

    registered = register(Registration(model=str(model)), registry)

    assert registered.earlier == 1
    assert version_overview(registry, VersionName.parse("net")).results == (earlier.id,)
