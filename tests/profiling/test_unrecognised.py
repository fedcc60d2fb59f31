"""Explanations why a path is no model, by content that is never executed."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest

from modeldyno.base.errors import RequestError
from modeldyno.models.loaders import onnx as onnx_loader
from modeldyno.profiling.resolve_model import resolve_reference
from modeldyno.profiling.unrecognised import explain_unrecognised

HERE = Path(__file__)


class Bomb:
    """Executes code when it is unpickled."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return pytest.fail, ("a pickle was executed",)


def archive(path: Path, pickled: bytes) -> Path:
    """Write what torch.save writes: a zip file with a pickle."""
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("m/data.pkl", pickled)
        made.writestr("m/data/0", b"0000")
    return path


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("config.json", '{"model_type": "bert", "hidden', "is not JSON (Unterminated string"),
        ("config.json", "[1]", "is no table of settings, so it is not one of transformers"),
        ("config.json", '{"hidden_size": 3}', "names no model_type, so it is not one of transformers"),
        ("m.pt", "", "is empty; copy it again"),
        ("m.pt", "PK\x03\x04 and so on", "is an archive whose end is missing; copy it again"),
        ("m.pt2", "PK\x03\x04", "is an archive whose end is missing; copy it again"),
        ("m.pt", "weights?", "holds weights without an architecture; write a function"),
        ("m.py", "x = 1", "m.py:make"),
        (
            "m.py",
            "class Net: pass\ndef make(n=1): pass\ndef f(a): pass\n_x = 1",
            "is code that defines Net, make;",
        ),
        ("m.py", "def make(*, n): pass\nclass _Net: pass", "is code; write a function in it"),
        ("m.py", "def make(", "cannot be parsed as Python ("),
        ("m.tflite", "what", "is no model of TensorFlow Lite, whatever its name says"),
        ("m.keras", "what", "is no Keras model, whatever its name says, or is damaged; save it again"),
        ("m.xyz", "what", "has content that no loader recognises; convert it to ONNX, or write scheme:"),
        ("m.plan", "what", "is an engine of TensorRT by its name, but not by its first bytes; build it"),
        ("m.MLMODEL", "what", "is a model of Core ML, by its name"),
        ("m.pdmodel", "what", "is a model of PaddlePaddle, by its name; convert it to ONNX with paddle2onnx"),
        ("graph.pb", "what", "convert it to ONNX with tf2onnx"),
    ],
)
def test_a_file_is_told_by_its_content(tmp_path: Path, name: str, content: str, says: str) -> None:
    """Damaged files are called damaged, and other files get advice on what to write instead."""
    path = tmp_path / name
    path.write_bytes(content.encode("latin-1"))

    assert says in explain_unrecognised(path, ("onnx", "torch"))


def test_the_last_of_what_code_has_is_proposed(tmp_path: Path) -> None:
    """A network is defined after the blocks that it is made of."""
    (tmp_path / "m.py").write_text("class Block: pass\nclass Net: pass")

    assert explain_unrecognised(tmp_path / "m.py", ()).endswith("m.py:Net")


def test_a_function_make_is_proposed_wherever_it_stands(tmp_path: Path) -> None:
    """The documentation names what makes a model so, and functions for trying things follow it."""
    (tmp_path / "m.py").write_text("class Net: pass\ndef make(): pass\ndef smaller(): pass")

    assert explain_unrecognised(tmp_path / "m.py", ()).endswith("m.py:make")


@pytest.mark.parametrize(
    ("member", "says"),
    [
        ("x.npy", "holds arrays, not a model; give it with `inputs`"),
        ("notes.txt", "has content that no loader recognises"),
    ],
)
def test_an_archive_without_a_pickle_is_told_by_what_it_holds(tmp_path: Path, member: str, says: str) -> None:
    """Arrays are inputs; any other archive is unknown."""
    path = tmp_path / "test.npz"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr(member, b"0")

    assert explain_unrecognised(path, ("onnx",)).startswith(says)


@pytest.mark.parametrize(("graph", "folder"), [("saved_model.pb", "1"), ("7/saved_model.pb", "1/7")])
def test_an_archive_of_a_savedmodel_is_unzipped_first(tmp_path: Path, graph: str, folder: str) -> None:
    """As ModelCI keeps it; the sentence names the folder in which the model then lies."""
    with zipfile.ZipFile(tmp_path / "1.zip", "w") as made:
        made.writestr(graph, b"")
        made.writestr(graph.replace("saved_model.pb", "variables/variables.index"), b"")

    assert explain_unrecognised(tmp_path / "1.zip", ("onnx",)) == (
        f"is a TensorFlow SavedModel in an archive; unzip it into {tmp_path / '1'}, name {tmp_path / folder}"
    )


def test_a_repository_without_configurations_is_told_with_a_file_in_it(tmp_path: Path) -> None:
    """A repository whose configuration Triton would complete is called that, and its entry likewise."""
    file = tmp_path / "digits/1/model.onnx"
    file.parent.mkdir(parents=True)
    file.touch()

    says = f"is a model repository without a config.pbtxt; name a model's file, such as {file}"

    assert explain_unrecognised(tmp_path, ()) == explain_unrecognised(tmp_path / "digits", ()) == says


def test_a_directory_is_told_by_its_configuration(tmp_path: Path) -> None:
    """A malformed configuration is reported as such."""
    assert explain_unrecognised(tmp_path, ()).startswith("holds no model: neither a config.json of")
    (tmp_path / "config.json").write_text("{")

    assert explain_unrecognised(tmp_path, ()).startswith("has a config.json that is not JSON (")


def test_the_graph_of_a_saved_model_leads_to_its_directory(tmp_path: Path) -> None:
    """Who names the saved_model.pb within a SavedModel is told the folder that it lies in."""
    graph = tmp_path / "saved_model.pb"
    graph.write_bytes(b"\x08\x01\x12\x00")  # as an ONNX file may begin

    assert not onnx_loader.claims(graph)
    assert explain_unrecognised(graph, ("onnx",)).endswith(f"name the folder that it lies in: {tmp_path}")


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"w": 1.0}, "holds weights without an architecture"),
        ([1, 2], "holds weights without an architecture"),
        (Path("x"), "is a pickled pathlib."),
    ],
)
def test_a_pickle_is_told_by_what_it_makes(tmp_path: Path, protocol: int, value: Any, says: str) -> None:
    """A table of tensors is weights; an object is named by its class, in an archive or not."""
    pickled = pickle.dumps(value, protocol)
    plain = tmp_path / "plain.pth"
    plain.write_bytes(pickled)

    assert explain_unrecognised(plain, ()).startswith(says)
    assert explain_unrecognised(archive(tmp_path / "zipped.pt", pickled), ()).startswith(says)
    assert explain_unrecognised(archive(tmp_path / "any.name", pickled), ()).startswith(says)


def test_a_whole_module_is_told_apart_from_its_weights(tmp_path: Path) -> None:
    """A saved module is named by its class; a state_dict is weights."""
    torch = pytest.importorskip("torch")
    torch.save(torch.nn.Linear(2, 2), tmp_path / "whole.pt")
    torch.save(torch.nn.Linear(2, 2).state_dict(), tmp_path / "state.pt")

    assert explain_unrecognised(tmp_path / "whole.pt", ()).startswith(
        "is a pickled torch.nn.modules.linear.Linear, and"
    )
    assert "`trust` does not load it either" in explain_unrecognised(tmp_path / "whole.pt", ())
    weights = explain_unrecognised(tmp_path / "state.pt", ())
    assert weights.startswith("holds weights without an architecture")
    assert f"module.load_state_dict(torch.load('{tmp_path / 'state.pt'}', weights_only=True))" in weights


def test_a_torchscript_archive_is_told_by_its_content(tmp_path: Path) -> None:
    """Whatever its suffix, it is no pickled module; the scheme that loads it is named."""
    with zipfile.ZipFile(tmp_path / "m.bin", "w") as file:
        file.writestr("m/data.pkl", b"\x80\x02c__torch__\nNet\n.")
        file.writestr("m/code/__torch__/net.py", b"")

    sentence = explain_unrecognised(tmp_path / "m.bin", ())
    assert sentence == f"is a TorchScript archive by another name; write torchscript:{tmp_path / 'm.bin'}"


@pytest.mark.parametrize("damage", [b"", b"\x80", b"\x80\x02cos\nsys", b"\x80\x04\x95", b"\x80\x02\xff\xff"])
def test_a_damaged_pickle_is_no_error(tmp_path: Path, damage: bytes) -> None:
    """However a pickle is truncated, there is a message."""
    assert explain_unrecognised(archive(tmp_path / "m.pt", damage), ()).startswith(
        "holds weights without an architecture"
    )


def test_nothing_of_a_pickle_is_executed(tmp_path: Path) -> None:
    """A malicious pickle is inspected, not executed."""
    path = archive(tmp_path / "m.pt", pickle.dumps(Bomb(), 2))

    with pytest.raises(RequestError, match=r"is a pickled _pytest\.outcomes.*runs code"):
        resolve_reference(str(path))


@pytest.mark.parametrize(
    ("name", "head"), [("m.keras", b"PK\x03\x04"), ("m.h5", b"\x89HDF\r\n"), ("M.KERAS", b"PK\x03\x04")]
)
def test_a_file_of_keras_is_told_by_its_ending(tmp_path: Path, name: str, head: bytes) -> None:
    """Neither Keras nor TensorFlow is needed to recognise a saved model."""
    (tmp_path / name).write_bytes(head)
    assert str(resolve_reference(str(tmp_path / name))) == f"keras:{tmp_path / name}"


def test_a_saved_model_is_told_by_its_graph(tmp_path: Path) -> None:
    """A folder with the graph of a SavedModel is one, whatever else lies in it."""
    (tmp_path / "saved_model.pb").touch()
    assert str(resolve_reference(str(tmp_path))) == f"savedmodel:{tmp_path}"
