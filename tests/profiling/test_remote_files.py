"""Files of an object store: fetched once, kept while they are the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import fsspec
import pytest

from modeldyno.base.errors import MissingExtra, RequestError, StoreUnavailable
from modeldyno.profiling import remote_files
from modeldyno.profiling.resolve_model import names_model, resolve_reference

if TYPE_CHECKING:
    from collections.abc import Iterator

ONNX = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


@pytest.fixture(autouse=True)
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[fsspec.AbstractFileSystem]:
    """Give a store in memory, with one model, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    system = fsspec.filesystem("memory")
    system.pipe_file("/bucket/models/digits.onnx", ONNX.read_bytes())
    yield system
    system.rm("/bucket", recursive=True)


def test_a_url_stands_for_the_file_and_keeps_its_name() -> None:
    """With a scheme or without, and as the only model of a folder; results and commands show the URL."""
    url = "memory://bucket/models/digits.onnx"
    for text in (url, f"onnx:{url}", "memory://bucket/models", "memory://bucket/models/"):
        ref = resolve_reference(text)
        assert ref.scheme == "onnx"
        assert Path(ref.locator).read_bytes() == ONNX.read_bytes()
        assert ref.argument == text
    assert names_model(url)


def test_what_is_the_same_is_not_fetched_again(bucket: fsspec.AbstractFileSystem, tmp_path: Path) -> None:
    """A changed file is, also within one session, and one that is cut off in the cache."""
    url = "memory://bucket/models/digits.onnx"
    path = remote_files.fetch_remote(url)
    path.write_bytes(b"x" * path.stat().st_size)
    assert remote_files.fetch_remote(url).read_bytes()[:3] == b"xxx"
    path.write_bytes(b"")
    assert remote_files.fetch_remote(url).read_bytes() == ONNX.read_bytes()
    bucket.pipe_file("/bucket/models/digits.onnx", b"another")
    assert remote_files.fetch_remote(url).read_bytes() == b"another"
    assert not list(tmp_path.rglob("*.part"))


def test_files_beside_a_model_that_begin_like_it_come_with_it(bucket: fsspec.AbstractFileSystem) -> None:
    """Its external data, and no other model."""
    for name in ("digits.onnx.data", "digits.bin", "digits2.onnx", "other.txt"):
        bucket.pipe_file(f"/bucket/models/{name}", b"1")
    folder = remote_files.fetch_remote("memory://bucket/models/digits.onnx").parent
    assert sorted(file.name for file in folder.iterdir()) == ["digits.bin", "digits.onnx", "digits.onnx.data"]


def test_a_repository_is_fetched_whole(bucket: fsspec.AbstractFileSystem) -> None:
    """Its model is named behind a #, as that of a folder on this machine."""
    bucket.pipe_file("/bucket/repo/net/1/model.onnx", ONNX.read_bytes())
    bucket.pipe_file("/bucket/repo/net/config.pbtxt", b'name: "net"\nbackend: "onnxruntime"\n')
    ref = resolve_reference("memory://bucket/repo#net")
    folder, _, entry = ref.locator.partition("#")
    assert (ref.scheme, entry) == ("repository", "net")
    assert (Path(folder) / "net" / "1" / "model.onnx").is_file()


def test_what_cannot_be_fetched_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is not there, credentials in the URL, and a package that is missing."""
    for missing in ("memory://bucket/none.onnx", "memory://nowhere"):
        with pytest.raises(RequestError, match=rf"There is no '{missing}'; check the bucket and the name"):
            remote_files.fetch_remote(missing)
    with pytest.raises(RequestError, match="leave them out of the URL") as refused:
        remote_files.fetch_remote("s3://me:hidden@bucket/net.onnx")
    assert "hidden" not in str(refused.value)

    def without(_url: str) -> None:
        raise ImportError

    monkeypatch.setattr(fsspec.core, "url_to_fs", without)
    with pytest.raises(MissingExtra, match=r"pip install 's3fs'"):
        remote_files.fetch_remote("s3://bucket/net.onnx")


def test_an_error_of_the_store_shows_no_credentials(
    bucket: fsspec.AbstractFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first line is told, without what the environment calls a secret; and a file cut off is none."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "quite-secret-words")

    def denied(*_: object) -> None:
        raise PermissionError("Access denied for quite-secret-words.\nmore")

    monkeypatch.setattr(type(bucket), "get_file", denied)
    with pytest.raises(StoreUnavailable, match=r"digits.onnx' cannot be read: Access denied for …\.$"):
        remote_files.fetch_remote("memory://bucket/models/digits.onnx")

    def cut_off(_system: object, _name: str, target: str) -> None:
        Path(target).write_bytes(b"1")

    monkeypatch.setattr(type(bucket), "get_file", cut_off)
    with pytest.raises(StoreUnavailable, match="was cut off, while it was fetched; try again"):
        remote_files.fetch_remote("memory://bucket/models/digits.onnx")


def test_a_name_that_leads_out_of_its_folder_is_refused(
    bucket: fsspec.AbstractFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key of a store may have any name; none is written outside the cache."""
    listed = {"/bucket/models/../../x": {"name": "/bucket/models/../../x", "size": 1, "type": "file"}}
    with monkeypatch.context() as patched:
        patched.setattr(type(bucket), "find", lambda *_args, **_options: listed)
        with pytest.raises(RequestError, match="leads out of its folder"):
            remote_files.fetch_remote("memory://bucket/models")
