"""Files that mean harm: `inspect` looks at them, and nothing of them runs, grows or falls over."""

from __future__ import annotations

import bz2
import codecs
import cProfile
import gzip
import io
import logging
import lzma
import mailbox
import operator
import os
import pickle
import py_compile
import random
import runpy
import shutil
import subprocess
import tarfile
import timeit
import tracemalloc
import warnings
import zipfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlretrieve

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from tests.zoo import configs, modules

from modeldyno.base import plugins
from modeldyno.base.errors import ModelDynoError, RequestError
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.metrics.measurement_plan import Plan
from modeldyno.models.loaders import hf, safetensors, torch_export, torchscript
from modeldyno.profiling.request import Request
from modeldyno.profiling.run import run_request
from modeldyno.testing.loaders import is_one_sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modeldyno.models.interface import Loader

FILES = ("torchscript", "exported", "hf", "hf-config", "safetensors", "onnx")
"""Schemes whose locator is a file or a directory; the others name code, which the user trusts."""

# --- malicious pickles --------------------------------------------------------------------------


class Reduced:
    """Pickles as a call of a function."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.call = function, args

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.call


def _writing(nest: Path) -> str:
    return f"open({str(nest)!r}, 'w').close()"


def by_opcodes(module: str, name: str, argument: str, how: str) -> bytes:
    """Write a pickle by hand: the function by GLOBAL or INST, called by REDUCE, OBJ, or NEWOBJ."""
    text = argument.encode("unicode_escape")
    match how:
        case "reduce":
            return f"c{module}\n{name}\n(V".encode() + text + b"\ntR."
        case "inst":
            return b"(V" + text + f"\ni{module}\n{name}\n.".encode()
        case "obj":
            return f"(c{module}\n{name}\nV".encode() + text + b"\no."
        case "memo":
            return f"c{module}\n{name}\np0\n0(V".encode() + text + b"\ntp1\n0g0\ng1\nR."
        case _:
            short = bytes([0x8C, len(module)]) + module.encode() + bytes([0x8C, len(name)]) + name.encode()
            return b"\x80\x04" + short + b"\x93(V" + text + b"\ntR."


KINDS: dict[str, Callable[[Path], Any]] = {
    "os.system": lambda nest: Reduced(os.system, f"touch {nest}"),
    "os.popen": lambda nest: Reduced(os.popen, f"touch {nest}"),
    "os.mkdir": lambda nest: Reduced(os.mkdir, str(nest)),
    "os.makedirs": lambda nest: Reduced(os.makedirs, str(nest)),
    "os.mkfifo": lambda nest: Reduced(os.mkfifo, str(nest)),
    "os.mknod": lambda nest: Reduced(os.mknod, str(nest)),
    "os.open": lambda nest: Reduced(os.open, str(nest), os.O_CREAT | os.O_WRONLY),
    "os.symlink": lambda nest: Reduced(os.symlink, __file__, str(nest)),
    "os.spawnvp": lambda nest: Reduced(os.spawnvp, os.P_WAIT, "touch", ["touch", str(nest)]),
    "subprocess.call": lambda nest: Reduced(subprocess.call, ["touch", str(nest)]),
    "subprocess.run": lambda nest: Reduced(subprocess.run, ["touch", str(nest)]),
    "subprocess.check_call": lambda nest: Reduced(subprocess.check_call, ["touch", str(nest)]),
    "subprocess.check_output": lambda nest: Reduced(subprocess.check_output, ["touch", str(nest)]),
    "subprocess.getoutput": lambda nest: Reduced(subprocess.getoutput, f"touch {nest}"),
    "subprocess.getstatusoutput": lambda nest: Reduced(subprocess.getstatusoutput, f"touch {nest}"),
    "exec": lambda nest: Reduced(exec, _writing(nest)),
    "eval": lambda nest: Reduced(eval, _writing(nest)),
    "compile": lambda nest: Reduced(exec, Reduced(compile, _writing(nest), "", "exec")),
    "importlib": lambda nest: Reduced(
        exec, f"import importlib; importlib.import_module('pathlib').Path({str(nest)!r}).touch()"
    ),
    "timeit": lambda nest: Reduced(timeit.timeit, _writing(nest), "0", int, 1),
    "cProfile": lambda nest: Reduced(cProfile.run, "0", str(nest)),
    "runpy": lambda nest: Reduced(
        vars(runpy)["_run_code"], compile(f"open({str(nest)!r}, 'w')", "", "exec").co_filename or "0", {}
    ),
    "open": lambda nest: Reduced(open, str(nest), "w"),
    "io.open": lambda nest: Reduced(io.FileIO, str(nest), "w"),
    "codecs.open": lambda nest: Reduced(codecs.open, str(nest), "w"),
    "gzip.open": lambda nest: Reduced(gzip.open, str(nest), "w"),
    "bz2.open": lambda nest: Reduced(bz2.open, str(nest), "w"),
    "lzma.open": lambda nest: Reduced(lzma.open, str(nest), "w"),
    "tarfile": lambda nest: Reduced(tarfile.open, str(nest), "w"),
    "zipfile": lambda nest: Reduced(zipfile.ZipFile, str(nest), "w"),
    "mailbox": lambda nest: Reduced(mailbox.mbox, str(nest)),
    "logging": lambda nest: Reduced(logging.FileHandler, str(nest)),
    "shutil": lambda nest: Reduced(shutil.copyfile, __file__, str(nest)),
    "shutil.copy": lambda nest: Reduced(shutil.copy, __file__, str(nest)),
    "py_compile": lambda nest: Reduced(py_compile.compile, __file__, str(nest)),
    "urlretrieve": lambda nest: Reduced(urlretrieve, Path(__file__).as_uri(), str(nest)),
    "Path.touch": lambda nest: Reduced(Path.touch, nest),
    "Path.mkdir": lambda nest: Reduced(Path.mkdir, nest),
    "Path.open": lambda nest: Reduced(Path.open, nest, "w"),
    "Path.symlink_to": lambda nest: Reduced(Path.symlink_to, nest, __file__),
    "Path.write_text": lambda nest: Reduced(Path.write_text, nest, "x"),
    "Path.write_bytes": lambda nest: Reduced(Path.write_bytes, nest, b"x"),
    "numpy.tofile": lambda nest: Reduced(np.ndarray.tofile, np.zeros(1), str(nest)),
    "torch.save": lambda nest: Reduced(torch.save, 0, str(nest)),
    "torch.load": lambda nest: Reduced(torch.load, str(nest)),
    "partial": lambda nest: Reduced(partial(os.mkdir, str(nest))),
    "methodcaller": lambda nest: Reduced(operator.methodcaller("touch"), nest),
    "operator.call": lambda nest: Reduced(operator.call, os.mkdir, str(nest)),
    "map": lambda nest: Reduced(list, Reduced(map, Path.touch, [nest])),
    "nested": lambda nest: {"state": [{"weight": (Reduced(Path.touch, nest),)}]},
    "a key": lambda nest: {Reduced(Path.touch, nest): 1},
    "a pickle in a pickle": lambda nest: Reduced(
        pickle.loads, pickle.dumps(Reduced(Path.touch, nest), protocol=0)
    ),
}
HARMLESS = {"runpy", "torch.load"}
"""Those that raise when they run, before a canary could be born; they are to be refused all the same."""
OPCODES = [
    (module, name, how)
    for module, name in (("posix", "system"), ("os", "system"), ("posix", "mkdir"), ("__builtin__", "exec"))
    for how in ("reduce", "inst", "obj", "memo", "stack")
]


def payloads(nest: Path) -> Iterator[tuple[str, bytes]]:
    """Give pickles that leave `nest` behind when they are loaded, in every protocol and by every opcode."""
    for name, make in KINDS.items():
        for protocol in range(6):
            yield f"{name} {protocol}", pickle.dumps(make(nest), protocol=protocol)
    for module, name, how in OPCODES:
        argument = {"system": f"touch {nest}", "mkdir": str(nest)}.get(name, f"open({str(nest)!r}, 'w')")
        plain = "builtins" if how == "stack" and module == "__builtin__" else module
        yield f"{module}.{name} {how}", by_opcodes(plain, name, argument, how)


def archive(path: Path, content: bytes, members: tuple[str, ...], others: tuple[str, ...] = ()) -> None:
    """Write a zip archive as torch does, with the pickle in some of its members."""
    with zipfile.ZipFile(path, "w") as file:
        for name in (*members, *others):
            file.writestr(f"archive/{name}", content if name in members else b"1")


def legacy(content: bytes) -> bytes:
    """Write what torch wrote before it used archives: a magic number, a protocol, the system, the object."""
    parts = (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})
    return b"".join(pickle.dumps(part, protocol=2) for part in parts) + content


def _directory(path: Path, content: bytes) -> None:
    path.mkdir()
    (path / "config.json").write_text('{"model_type": "nothing"}')
    (path / "pytorch_model.bin").write_bytes(content)


PLACES: dict[str, Callable[[Path, bytes], object]] = {
    "bare.pt": lambda path, content: path.write_bytes(content),
    "bare.pth": lambda path, content: path.write_bytes(content),
    "bare.bin": lambda path, content: path.write_bytes(content),
    "bare.pkl": lambda path, content: path.write_bytes(content),
    "bare.pt2": lambda path, content: path.write_bytes(content),
    "bare.onnx": lambda path, content: path.write_bytes(content),
    "bare.safetensors": lambda path, content: path.write_bytes(content),
    "legacy.pt": lambda path, content: path.write_bytes(legacy(content)),
    "saved.pt": lambda path, content: archive(path, content, ("data.pkl",), ("version",)),
    "saved.bin": lambda path, content: archive(path, content, ("data.pkl",), ("version",)),
    "script.pt": lambda path, content: archive(path, content, ("data.pkl", "constants.pkl"), ("code/m.py",)),
    "script.ts": lambda path, content: archive(path, content, ("data.pkl", "constants.pkl"), ("code/m.py",)),
    "program.pt2": lambda path, content: archive(
        path, content, ("data/sample_inputs/model.pt", "data/weights/w", "models/model.json")
    ),
    "old.pt2": lambda path, content: archive(
        path, content, ("serialized_exported_program.json", "serialized_state_dict.pt")
    ),
    "directory": _directory,
}


def sentence(error: ModelDynoError) -> bool:
    """Whether an error is a request's, in one line."""
    return isinstance(error, RequestError) and is_one_sentence(str(error))


def a_request(path: Path) -> Request:
    """Ask for what `inspect` asks for."""
    return Request(model=str(path), settings={}, probes=("static",), plan=Plan())


def examined(path: Path) -> Iterator[ModelDynoError | None]:
    """Give the answers of `inspect` to the path, and to the path under every scheme for files."""
    try:
        run_request(a_request(path), in_process=True)
        yield None
    except ModelDynoError as error:
        yield error
    for scheme in FILES:
        loader: Loader = plugins.loader(scheme)
        loader.claims(path)
        light_load = getattr(loader, "look", loader.load)
        for way in (light_load, loader.load):
            try:
                way(ModelRef(scheme=scheme, locator=str(path)), seed=0, trust=False)
                yield None
            except ModelDynoError as error:
                yield error


@pytest.mark.parametrize("name", sorted(KINDS.keys() - HARMLESS))
def test_the_corpus_bites(tmp_path: Path, name: str) -> None:
    """Each kind of pickle leaves its canary when it is loaded, in every protocol."""
    for protocol in range(6):
        nest = tmp_path / f"nest {protocol}".replace(" ", "-")
        content = pickle.dumps(KINDS[name](nest), protocol=protocol)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                made = pickle.loads(content)
            except TypeError:  # a list is no key, and what was made need not be one
                made = None
        if hasattr(made, "close"):
            made.close()
        assert nest.exists()


@pytest.mark.parametrize("how", ["reduce", "inst", "obj", "memo", "stack"])
def test_every_opcode_bites(tmp_path: Path, how: str) -> None:
    """Each way to write a call by hand leaves its canary when it is loaded."""
    pickle.loads(by_opcodes("posix", "mkdir", str(tmp_path / "nest"), how))
    assert (tmp_path / "nest").exists()


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("place", PLACES)
def test_no_pickle_runs(tmp_path: Path, place: str, *, every: bool) -> None:
    """Of 332 malicious pickles none runs by itself, nor those of any place; every answer is a sentence."""
    nest = tmp_path / "nest"
    corpus = list(payloads(nest))
    assert len(corpus) == 332
    chosen = corpus if every or place == "bare.pt" else corpus[:: 5 if "onnx" not in place else 20]
    for number, (_, content) in enumerate(chosen):
        path = tmp_path / f"{number}-{place}"
        PLACES[place](path, content)
        for answer in examined(path):
            assert answer is not None
            assert sentence(answer)
        assert not nest.exists()


def test_a_sound_directory_with_a_pickle_is_looked_at(tmp_path: Path) -> None:
    """A model with a malicious pickle for weights is analysed by its configuration; nothing of it runs."""
    folder = configs.write_config(tmp_path / "bert", "bert")
    nest = tmp_path / "nest"
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Reduced(Path.touch, nest)))

    outcome = run_request(a_request(folder), in_process=True)
    assert (outcome.result["macs"] or 0) > 0
    assert not nest.exists()


# --- archives that grow ----------------------------------------------------------------------------


def bomb(path: Path, number: int) -> None:
    """Write an archive that is far larger unpacked than it is packed."""
    script = number % 2 == 0
    members = (
        ["data.pkl", "constants.pkl", "code/m.py"] if script else ["models/model.json", "data/weights/w"]
    )
    kind = number // 2 % 5
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for name in members:
            with file.open(f"archive/{name}", "w", force_zip64=True) as member:
                for _ in range(16 if kind == 0 else 1):
                    member.write(bytes(1 << 20))
        if kind == 1:
            for index in range(1000):
                file.writestr(f"archive/data/{index}", bytes(1000))
        if kind == 2:
            file.writestr("archive/data/" + "n" * 60_000, b"")
        if kind == 3:
            file.writestr("archive/inner.zip", path.read_bytes())
    if kind == 4:
        _claim(path)


WEIGHTS = {
    "deflated.pt": zipfile.ZIP_DEFLATED, "deflated.bin": zipfile.ZIP_DEFLATED,
    "deflated.pth": zipfile.ZIP_DEFLATED, "deflated.zip": zipfile.ZIP_DEFLATED,
    "burrows.pt": zipfile.ZIP_BZIP2, "burrows.ckpt": zipfile.ZIP_BZIP2, "lzma.pt": zipfile.ZIP_LZMA,
    "many.pt": zipfile.ZIP_DEFLATED, "claiming.pt": zipfile.ZIP_DEFLATED, "arrays.npz": zipfile.ZIP_DEFLATED,
}  # fmt: skip
"""Name of an archive that torch would take for weights, or numpy for arrays, and how it is packed."""


def bomb_of_weights(path: Path) -> None:
    """Write an archive without code, whose first pickle or array is 80 MB of zeros."""
    name = "a.npy" if path.suffix == ".npz" else "archive/data.pkl"
    with zipfile.ZipFile(path, "w", WEIGHTS[path.name], compresslevel=1) as file:
        with file.open(name, "w", force_zip64=True) as member:
            member.write(pickle.dumps({"weight": 1.0})[:-1])
            for _ in range(80):
                member.write(bytes(1 << 20))
        for index in range(5000 if path.stem == "many" else 0):
            file.writestr(f"archive/data/{index}", b"")
    if path.stem == "claiming":
        _claim(path)


def _claim(path: Path) -> None:
    """Have the list of members claim that each is of four gigabytes."""
    content = bytearray(path.read_bytes())
    at = content.find(b"PK\x01\x02")
    while at >= 0:
        content[at + 24 : at + 28] = b"\xfe\xff\xff\xff"
        at = content.find(b"PK\x01\x02", at + 4)
    path.write_bytes(content)


@pytest.mark.parametrize("number", range(10))
def test_bombs_are_not_inflated(tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive of another size inside than outside is listed at most: no member of it is read."""
    path = tmp_path / ("bomb.pt" if number % 2 == 0 else "bomb.pt2")
    bomb(path, number)

    def refuse(*_: Any, **__: Any) -> None:
        pytest.fail("a member was inflated")

    monkeypatch.setattr(zipfile.ZipFile, "open", refuse)
    tracemalloc.start()
    try:
        for answer in examined(path):
            assert answer is not None
            assert sentence(answer)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64e6


@pytest.mark.parametrize("name", WEIGHTS)
def test_bombs_of_weights_are_read_at_their_beginning(tmp_path: Path, name: str) -> None:
    """An archive that no loader claims is explained from the first bytes of its pickle."""
    path = tmp_path / name
    bomb_of_weights(path)
    tracemalloc.start()
    try:
        with pytest.raises(RequestError) as caught:
            run_request(a_request(path), in_process=True)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sentence(caught.value)
    assert peak < 64e6


# --- archives that are damaged ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Give a small archive of each kind, as bytes."""
    folder = tmp_path_factory.mktemp("archives")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.script(modules.mlp().eval()), str(folder / "m.pt"))
    torch.export.save(torch.export.export(modules.mlp().eval(), (torch.ones(3, 4),)), folder / "m.pt2")
    return {name: (folder / name).read_bytes() for name in ("m.pt", "m.pt2")}


def mutated(content: bytes, draw: random.Random) -> bytes:
    """Change, cut, double or fill parts of a file; half of the time near its end, where the list is."""
    changed = bytearray(content)
    for _ in range(draw.randint(1, 8)):
        near = max(0, len(changed) - 1500) if draw.random() < 0.5 else 0
        at = draw.randrange(near, len(changed)) if len(changed) > near else 0
        end = min(len(changed), at + draw.choice([1, 2, 4, 30, 1000]))
        match draw.randrange(6):
            case 0:
                changed[at:end] = b""
            case 1:
                changed[at:at] = changed[at:end]
            case 2:
                changed[at:end] = b"\xff" * (end - at)
            case 3:
                del changed[at:]
            case _:
                changed[at:end] = draw.randbytes(end - at)
    return bytes(changed)


@pytest.mark.parametrize("name", ["m.pt", "m.pt2"])
@pytest.mark.parametrize("seed", range(5))
def test_damaged_archives_are_refused(
    tmp_path: Path, archives: dict[str, bytes], name: str, seed: int
) -> None:
    """Of 300 mutations of an archive every answer without trust is a sentence."""
    draw = random.Random(seed)
    path = tmp_path / name
    for _ in range(60):
        path.write_bytes(mutated(archives[name], draw))
        for loader in (torchscript, torch_export, safetensors, hf):
            loader.claims(path)
            for way in (loader.look, loader.load):
                with pytest.raises(RequestError) as caught:
                    way(ModelRef(scheme="", locator=str(path)), seed=0, trust=False)
                assert is_one_sentence(str(caught.value))


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors.index.json", "deep.json", "deep.py", "deep.safetensors"]
)
def test_what_is_nested_without_end_is_refused(tmp_path: Path, name: str) -> None:
    """A hundred thousand brackets are no configuration, no index of shards and no code."""
    path = tmp_path / name
    deep = b'{"model_type": ' + b"[" * 100_000
    path.write_bytes(len(deep).to_bytes(8, "little") + deep if path.suffix == ".safetensors" else deep)
    folder = [tmp_path] if name == "config.json" else []
    if "index" in name:
        (tmp_path / "config.json").write_text('{"model_type": "bert", "num_hidden_layers": 1}')
        folder = [tmp_path]
    for each in (path, *folder):
        with pytest.raises(RequestError) as caught:
            run_request(a_request(each), in_process=True)
        assert sentence(caught.value)
