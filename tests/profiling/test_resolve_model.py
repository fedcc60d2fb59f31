"""Which model a word names; nothing is executed for it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from modeldyno.base.errors import RequestError
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.profiling.resolve_model import refers_to_model, resolve_reference

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change into an empty directory."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("config", [None, '{"model_type": "bert"}', "{}"])
def test_a_directory_is_the_only_model_in_it(tmp_path: Path, config: str | None) -> None:
    """The only model file counts, despite a tokenizer, a configuration without weights, and external data."""
    for name in ("model.onnx", "model.onnx_data", "tokenizer.json", "tokenizer.model"):
        (tmp_path / name).write_bytes(b"\x08\x08\x12\x07")
    if config is not None:
        (tmp_path / "config.json").write_text(config)

    assert resolve_reference(str(tmp_path)) == ModelRef(scheme="onnx", locator=str(tmp_path / "model.onnx"))


def test_a_directory_of_hugging_face_with_weights_is_one_model(tmp_path: Path) -> None:
    """An exported file does not replace the configuration and the weights next to it."""
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    assert resolve_reference(str(tmp_path)) == ModelRef(scheme="hf-config", locator=str(tmp_path))
    (tmp_path / "model.onnx").touch()
    (tmp_path / "model.safetensors").touch()
    assert resolve_reference(str(tmp_path)) == ModelRef(scheme="hf", locator=str(tmp_path))


def test_a_directory_of_several_models_names_them(tmp_path: Path) -> None:
    """The user must choose among several models."""
    for name in "abcdefgh":
        (tmp_path / f"{name}.onnx").touch()
    with pytest.raises(
        RequestError, match=r"holds 8 models: a\.onnx, .*, f\.onnx and 2 more; name .* \S+/a\.onnx\."
    ):
        resolve_reference(str(tmp_path))


def test_a_pipe_is_no_model(tmp_path: Path) -> None:
    """Reading one would wait for ever; it is refused with a scheme and without, and in a directory."""
    os.mkfifo(tmp_path / "m.onnx")
    for word in ("m.onnx", "onnx:m.onnx", "."):
        with pytest.raises(RequestError, match="is a pipe, a socket or a device"):
            resolve_reference(word)
    assert not refers_to_model("m.onnx")


def test_a_name_that_is_not_utf_8_is_refused_as_that(tmp_path: Path) -> None:
    """The file is there; that there is none would send the reader the wrong way."""
    (tmp_path / os.fsdecode(b"n\xff.onnx")).write_bytes(b"")
    for word in (os.fsdecode(b"n\xff.onnx"), os.fsdecode(b"onnx:n\xff.onnx")):
        with pytest.raises(RequestError, match="is not UTF-8; rename it"):
            resolve_reference(word)


def test_a_link_to_nothing_is_called_so(tmp_path: Path) -> None:
    """A link to itself, too; its own name is no hint."""
    (tmp_path / "m.onnx").symlink_to("gone.onnx")
    (tmp_path / "loop.onnx").symlink_to("loop.onnx")
    with pytest.raises(RequestError, match=r"'m\.onnx' is a link to a file that does not exist: gone\.onnx"):
        resolve_reference("m.onnx")
    with pytest.raises(RequestError, match="is a link to a file that does not exist"):
        resolve_reference("loop.onnx")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("mynet:MyNet", r"for mynet\.py write mynet\.py:MyNet\."),
        ("nets.big_net:make", r"for nets/big_net\.py write nets/big_net\.py:make\."),
        ("my.net:Net", r"no file or directory 'my\.net:Net'; .* write torch:my\.net:Net .* my/net\.py:Net\."),
        ("there/is.none", r"There is no file or directory 'there/is\.none'; check the path"),
    ],
)
def test_a_module_is_spelt_as_a_file(tmp_path: Path, text: str, says: str) -> None:
    """If only the suffix of a Python file is missing, the message gives the full spelling."""
    (tmp_path / "mynet.py").touch()
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "big_net.py").touch()
    with pytest.raises(RequestError, match=says):
        resolve_reference(text)


def test_a_scheme_stands_though_a_file_is_called_so(tmp_path: Path) -> None:
    """A file named like a loader does not replace it."""
    (tmp_path / "torch.py").touch()
    assert resolve_reference("torch:pkg:make").scheme == "torch"
    assert resolve_reference("onxn:m.onnx").scheme == "onxn"


def test_a_directory_with_one_model_refers_to_it(tmp_path: Path) -> None:
    """Where a result is expected, a directory with a single model is recognised as a model."""
    assert not refers_to_model(str(tmp_path))
    (tmp_path / "one.onnx").touch()
    assert refers_to_model(str(tmp_path))
    (tmp_path / "two.onnx").touch()
    assert not refers_to_model(str(tmp_path))


@pytest.mark.parametrize("scheme", ["", "torch:", "call:"])
def test_what_a_file_never_speaks_of_is_refused_before_anything_runs(tmp_path: Path, scheme: str) -> None:
    """Otherwise a comparison would first measure the other side."""
    with pytest.raises(RequestError, match=r"There is no file '.*net\.py'; give the path of a Python file"):
        resolve_reference(f"{scheme}{tmp_path}/net.py:make")
    (tmp_path / "net.py").write_text("raise SystemExit\nclass Net: pass\ndef make(): return Net()\n")
    with pytest.raises(RequestError, match=r"no object in .*net\.py called 'Nett'; did you mean 'Net'\?"):
        resolve_reference(f"{scheme}{tmp_path}/net.py:Nett")
    assert (
        resolve_reference(f"{scheme}{tmp_path}/net.py:make.inner").locator == f"{tmp_path}/net.py:make.inner"
    )


def test_names_may_come_from_elsewhere(tmp_path: Path) -> None:
    """Names that a file imports or creates at run time do not appear in it."""
    for code in ("from nets import *", "globals().update(nets)", "def __getattr__(name): ..."):
        (tmp_path / "net.py").write_text(code)
        assert resolve_reference(f"{tmp_path}/net.py:resnet").scheme == "torch"
