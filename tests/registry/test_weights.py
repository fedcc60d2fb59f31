"""Copies of models' files: kept once by content, whole or not at all, and never outside their folder."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import fsspec
import pytest
from tests.support.sample_registry import a_version

from modeldyno.base.errors import RequestError, StoreError
from modeldyno.registry import weights
from modeldyno.registry.records.records import WeightFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modeldyno.registry.records.records import Version

CONTENT = {"model.onnx": b"graph" * 1000, "data/weights.bin": bytes(range(256)) * 100, "empty": b""}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Give the folder of a model of three files."""
    root = tmp_path / "model"
    for name, content in CONTENT.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


@pytest.fixture(params=["folder", "memory"])
def where(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Give a place for copies: a folder, and a place elsewhere."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if request.param == "folder":
        yield str(tmp_path / "a::b kept")
        return
    yield f"memory://{tmp_path.name}"
    fsspec.filesystem("memory").rm("/", recursive=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder for copies."""
    return tmp_path / "kept"


def keep(model: Path, where: str) -> Version:
    """Keep a model's files; return a version that has them."""
    files = weights.keep([model / name for name in CONTENT], model, where)
    return a_version(files=files, entry="model.onnx")


def content_of(root: Path) -> dict[str, bytes]:
    """Return the files of a folder."""
    return {
        str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()
    }


class TestKeep:
    def test_what_is_kept_is_fetched_again(self, model: Path, where: str) -> None:
        """File by file, with digests and sizes, without the original."""
        version = keep(model, where)
        assert [(file.path, file.size) for file in version.files] == [(n, len(c)) for n, c in CONTENT.items()]
        assert version.files[0].digest == "sha256:" + hashlib.sha256(CONTENT["model.onnx"]).hexdigest()
        for path in model.rglob("*"):
            if path.is_file():
                path.unlink()

        path = weights.fetch(version, where)
        assert path.name == "model.onnx"
        assert content_of(path.parent) == CONTENT
        assert weights.fetch(version, where) == path
        assert weights.fetch(replace(version, entry="."), where) == path.parent

    def test_equal_content_is_kept_once(self, model: Path, folder: Path) -> None:
        """Twice the same model, or two files alike, under whatever names."""
        (model / "copy").write_bytes(CONTENT["model.onnx"])
        first, second = keep(model, str(folder)), keep(model, str(folder))
        weights.keep([model / "copy"], model, str(folder))

        assert first.files == second.files
        assert len(list(folder.rglob("sha256/*/*"))) == len(CONTENT)

    def test_copies_are_named_by_their_content(self, model: Path, folder: Path) -> None:
        """Never by what somebody calls them; and nobody overwrites them by mistake."""
        keep(model, str(folder))
        for path in folder.rglob("sha256/*/*"):
            assert path.name == hashlib.sha256(path.read_bytes()).hexdigest()
            assert path.parent.name == path.name[:2]
            assert path.stat().st_mode & 0o222 == 0

    def test_a_damaged_copy_is_made_anew(self, model: Path, folder: Path) -> None:
        """By keeping the model again, as the message about the damage says."""
        version = keep(model, str(folder))
        for blob in folder.rglob("sha256/*/*"):
            blob.chmod(0o644)
            blob.write_bytes(b"x" * blob.stat().st_size)
        with pytest.raises(StoreError, match="is damaged: its digest is wrong; remove it, and register"):
            weights.fetch(version, str(folder))
        assert not list(folder.rglob("models/**/model.onnx"))
        keep(model, str(folder))
        assert content_of(weights.fetch(version, str(folder)).parent) == CONTENT

    def test_a_file_that_cannot_be_read_is_told(self, model: Path, where: str) -> None:
        """In one sentence."""
        with pytest.raises(
            StoreError, match=r"gone\.onnx cannot be copied to .*: No such file or directory\."
        ):
            weights.keep([model / "gone.onnx"], model, where)

    def test_a_place_that_cannot_be_written_is_told(self, model: Path, tmp_path: Path) -> None:
        """Such as one below a file."""
        (tmp_path / "file").touch()
        with pytest.raises(StoreError, match=r"cannot be copied to .*file/kept: ") as caught:
            keep(model, str(tmp_path / "file" / "kept"))
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("where", ["nosuchscheme://bucket", "gopher://x/y"])
    def test_a_place_that_is_none_is_refused(self, model: Path, where: str) -> None:
        """With the variable that names it."""
        with pytest.raises(RequestError, match=r"MODELDYNO_WEIGHTS '.*' cannot be used"):
            keep(model, where)

    def test_a_file_that_changes_meanwhile_is_refused(
        self, model: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A checkpoint that is still being written."""
        real = weights._digest

        def digest(file: Path) -> str:
            value = real(file)
            if file.parent == model:
                file.write_bytes(b"later")
            return value

        monkeypatch.setattr(weights, "_digest", digest)
        with pytest.raises(StoreError, match="changed while it was copied; register it when it is finished"):
            keep(model, str(folder))
        assert list(folder.rglob("sha256/*/*")) == []

    def test_the_place_is_beside_the_store_or_where_the_variable_says(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By default a folder."""
        monkeypatch.delenv("MODELDYNO_WEIGHTS", raising=False)
        assert weights.place(Path("/data/store.db.models")) == "/data/store.db.models"
        monkeypatch.setenv("MODELDYNO_WEIGHTS", "s3://bucket/models")
        assert weights.place(Path("/data/store.db.models")) == "s3://bucket/models"


class TestFetch:
    def test_a_copy_that_is_gone_is_told(self, model: Path, where: str) -> None:
        """By the names of the file and of the version."""
        version = keep(model, where)
        system, base = weights._file_system(where)
        system.rm(f"{base}/sha256", recursive=True)
        with pytest.raises(StoreError, match=r"The copy of model\.onnx of digits/1 is not in .* any more"):
            weights.fetch(version, where)

    def test_what_was_cut_off_is_fetched_again(self, model: Path, where: str) -> None:
        """A file of another size than it should have is no fetched one."""
        version = keep(model, where)
        path = weights.fetch(version, where)
        path.unlink()
        path.write_bytes(b"cut")
        assert weights.fetch(version, where).read_bytes() == CONTENT["model.onnx"]

    def test_damage_elsewhere_is_found(self, model: Path, where: str) -> None:
        """Before anything is loaded of it."""
        version = keep(model, where)
        system, base = weights._file_system(where)
        blob = weights._blob(base, version.files[0])
        system.rm_file(blob)
        system.pipe_file(blob, b"x" * version.files[0].size)
        with pytest.raises(StoreError, match="is damaged"):
            weights.fetch(version, where)

    @pytest.mark.parametrize("path", ["../out", "/etc/passwd", "a/../../out", "", ".", "a\0b"])
    def test_no_name_leads_out_of_the_folder(self, model: Path, folder: Path, path: str) -> None:
        """Neither of a file nor of what is loaded; whoever wrote such a row is no friend."""
        version = keep(model, str(folder))
        (file, *_) = version.files
        for hostile in (
            replace(version, files=(replace(file, path=path),)),
            replace(version, entry="../" + path),
        ):
            with pytest.raises(StoreError, match="which is outside its model; it is damaged"):
                weights.fetch(hostile, str(folder))
        assert not (folder.parent / "out").exists()

    @pytest.mark.parametrize("digest", ["", "sha256:", "sha256:../../../../etc/passwd", "sha256:" + "A" * 64])
    def test_no_digest_leads_out_of_the_folder(self, folder: Path, digest: str) -> None:
        """It is sixty-four hexadecimal digits."""
        file = WeightFile(path="model.onnx", digest=digest, size=1)
        with pytest.raises(StoreError, match=r"names the digest .* it is damaged"):
            weights.fetch(a_version(files=(file,), entry="model.onnx"), str(folder))


class TestExport:
    def test_a_model_is_copied_out(self, model: Path, where: str, tmp_path: Path) -> None:
        """Its files only, which can be written to; what is kept stays as it is."""
        version = keep(model, where)
        (weights.fetch(version, where).parent / "unfinished.part").touch()
        out = tmp_path / "out"

        assert weights.export(version, where, out) == out / "model.onnx"
        assert content_of(out) == CONTENT
        (out / "model.onnx").write_bytes(b"mine")
        assert weights.fetch(version, where).read_bytes() == CONTENT["model.onnx"]

    def test_a_folder_model_is_its_folder(self, model: Path, where: str, tmp_path: Path) -> None:
        """Its entry is the folder itself; an empty one is filled."""
        out = tmp_path / "out"
        out.mkdir()
        assert weights.export(replace(keep(model, where), entry="."), where, out) == out
        assert content_of(out) == CONTENT

    def test_nothing_is_written_over(self, model: Path, folder: Path) -> None:
        """Neither a file nor a folder with something in it."""
        version = keep(model, str(folder))
        for taken in (model, model / "model.onnx"):
            with pytest.raises(RequestError, match="is there already; name a new folder, or an empty one"):
                weights.export(version, str(folder), taken)

    def test_a_place_that_cannot_be_written_is_told(self, model: Path, folder: Path, tmp_path: Path) -> None:
        """In one sentence."""
        (tmp_path / "file").touch()
        with pytest.raises(StoreError, match=r"out cannot be written: Not a directory\."):
            weights.export(keep(model, str(folder)), str(folder), tmp_path / "file" / "out")


def overwrite(path: Path, content: bytes) -> None:
    """Write into the file that is there, which is the copy itself where it is a link to it."""
    path.chmod(0o644)
    path.write_bytes(content)


def replace_file(path: Path, content: bytes) -> None:
    """Put another file in its place."""
    other = path.with_name("other")
    other.write_bytes(content)
    other.replace(path)


def point_elsewhere(path: Path, content: bytes) -> None:
    """Put a link to another file in its place."""
    other = path.parents[2] / f"{path.name}-elsewhere"
    other.write_bytes(content)
    path.unlink()
    path.symlink_to(other)


SWAPS = (overwrite, replace_file, point_elsewhere)


class TestSwap:
    @pytest.mark.parametrize("count", [30, pytest.param(200, marks=pytest.mark.slow)])
    def test_no_file_of_equal_size_is_handed_out(
        self, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
    ) -> None:
        """Whichever file is swapped, and whatever time it has: it is fetched anew or refused."""
        monkeypatch.setattr(weights, "_REST", -1e9)  # what was read is remembered at once
        chance = random.Random(7)
        refused = healed = 0
        for n in range(count):
            folder = str(tmp_path / f"kept-{n}")
            version = keep(model, folder)
            path = weights.fetch(version, folder)
            root = path.parent
            victim = root / chance.choice(["model.onnx", "data/weights.bin"])
            status, content = victim.stat(), bytearray(victim.read_bytes())
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
            time.sleep(0.01)  # a tick of the file system's clock
            chance.choice(SWAPS)(victim, bytes(content))
            os.utime(victim, ns=(status.st_atime_ns, status.st_mtime_ns))
            door = chance.choice(["fetch", "export"])
            try:
                if door == "fetch":
                    root = weights.fetch(version, folder).parent
                else:
                    root = weights.export(version, folder, tmp_path / f"out-{n}").parent
            except StoreError as error:
                refused += "its digest is wrong" in str(error)
                continue
            healed += content_of(root) == CONTENT
        print(f"{refused} refused, {healed} fetched again")
        assert refused + healed == count
        assert refused
        assert healed

    def test_a_file_is_read_once_by_a_process(
        self, model: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As models have gigabytes; but not while it may still change within one tick of the clock."""
        version = keep(model, str(folder))
        weights.fetch(version, str(folder))
        read: list[Path] = []
        real = weights._digest

        def digest(file: Path) -> str:
            read.append(file)
            return real(file)

        monkeypatch.setattr(weights, "_digest", digest)

        weights.fetch(version, str(folder))
        assert len(read) == len(CONTENT)
        monkeypatch.setattr(weights, "_REST", -1e9)
        weights.fetch(version, str(folder))
        read.clear()
        weights.fetch(version, str(folder))

        assert not read

    def test_a_copy_that_is_changed_on_its_way_out_is_refused(
        self, model: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What was copied is checked, not what was to be copied."""
        version = keep(model, str(folder))

        def copy(_source: Path, target: Path) -> None:
            target.write_bytes(b"x" * len(CONTENT["model.onnx"]))

        monkeypatch.setattr("shutil.copyfile", copy)
        with pytest.raises(StoreError, match=r"model\.onnx of digits/1 was changed while it was copied"):
            weights.export(version, str(folder), tmp_path / "out")


KEEP = """
import sys
from pathlib import Path
from modeldyno.registry import weights
print(flush=True)
for n in range(1000):
    weights.keep([Path(sys.argv[1])], Path(sys.argv[1]).parent, f"{sys.argv[2]}/{n}")
"""


class TestKilled:
    def test_kill_9_leaves_nothing_half(self, tmp_path: Path) -> None:
        """Whenever it comes: each copy that is there has all of its content, and keeping goes on."""
        source = tmp_path / "model.bin"
        source.write_bytes(random.Random(1).randbytes(3_000_000))
        chance = random.Random(2)
        complete = unfinished = 0
        for n in range(5):
            place = tmp_path / f"kept-{n}"
            process = subprocess.Popen(
                [sys.executable, "-c", KEEP, str(source), str(place)], stdout=subprocess.PIPE
            )
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(chance.uniform(0.02, 0.3))
            process.send_signal(signal.SIGKILL)
            process.communicate()
            for blob in place.glob("*/sha256/*/*"):
                if blob.suffix == ".part":
                    unfinished += 1
                else:
                    complete += 1
                    assert hashlib.sha256(blob.read_bytes()).hexdigest() == blob.name
            version = a_version(files=weights.keep([source], tmp_path, f"{place}/0"), entry="model.bin")
            assert weights.fetch(version, f"{place}/0").read_bytes() == source.read_bytes()
        print(f"{complete} whole copies, {unfinished} unfinished ones")
        assert complete

    def test_what_was_left_unfinished_is_swept(self, model: Path, folder: Path) -> None:
        """Once nobody can be writing to it any more."""
        keep(model, str(folder))
        blobs = folder / "sha256"
        for name, age in (("old", 7200.0), ("new", 60.0)):
            part = blobs / "aa" / f"{name}.part"
            part.parent.mkdir(exist_ok=True)
            part.touch()
            os.utime(part, (time.time() - age,) * 2)
        keep(model, str(folder))
        assert [path.name for path in blobs.rglob("*.part")] == ["new.part"]

    def test_two_processes_may_keep_the_same(self, tmp_path: Path) -> None:
        """Both succeed, and there is one copy."""
        source = tmp_path / "model.bin"
        source.write_bytes(b"x" * 1_000_000)
        code = KEEP.replace("range(1000)", "range(20)")
        both = [
            subprocess.Popen([sys.executable, "-c", code, str(source), str(tmp_path / "kept")])
            for _ in range(2)
        ]
        assert [process.wait(60) for process in both] == [0, 0]
        assert len(list(tmp_path.glob("kept/*/sha256/*/*"))) == 20
