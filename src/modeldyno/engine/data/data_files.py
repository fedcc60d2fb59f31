"""Reads files of real data: .npz, .npy, .jsonl, and text.

The result is either named arrays whose first axis counts samples, or a list of texts that still need a
tokenizer. Files are untrusted: pickles are rejected, and sizes are checked first.
"""

from __future__ import annotations

import json
import zipfile
from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from modeldyno.base.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from pathlib import Path

    from numpy import ndarray

    from modeldyno.models.interface import Feed

T = TypeVar("T")

_MAX_BYTES = 2 * 2**30
"""Maximum unpacked bytes that are read into memory."""
_MAX_RATIO = 1000
"""Maximum compression ratio of a large file; above it the file is rejected."""
_SMALL_BYTES = 64 * 2**20
"""Unpacked bytes below which the compression ratio does not matter."""
_PARAGRAPHS = (".md", ".markdown", ".rst")


def read_data_file(
    path: Path,
    names: Sequence[str],
    limit: int,
    optional: Collection[str] = (),
    labels: Collection[str] = (),
) -> Feed | list[str]:
    """Read up to `limit` samples for the inputs `names`; other arrays are ignored.

    The only array of a .npz file, beside `labels`, is that of the only input, whatever its name.

    Raises:
        RequestError: the file is missing, damaged or too large, or lacks an input that is not optional.
    """
    if not path.is_file():
        raise RequestError(f"There is no data file {path}; check the path given to `inputs`.")
    match path.suffix.lower():
        case ".npz":
            arrays = _npz(path, names, labels)
        case ".npy":
            arrays = _npy(path, names, limit)
        case ".jsonl" | ".ndjson":
            samples = _jsonl(path, names, limit)
            if isinstance(samples, list):
                return samples
            arrays = samples
        case _:
            return _texts(path, limit)
    _check_complete(path, arrays, names, optional)
    return {name: _first_samples(path, name, arrays[name], limit) for name in names if name in arrays}


def row_counts(path: Path) -> dict[str, int]:
    """Return the rows of each array of a .npz file by name, from their heads; {} for another file."""
    import numpy as np  # slow to import

    if path.suffix.lower() != ".npz":
        return {}

    def load() -> dict[str, int]:
        rows = {}
        _check_compression(path)
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                with archive.open(member) as file:
                    version = np.lib.format.read_magic(file)
                    read = (
                        np.lib.format.read_array_header_1_0
                        if version == (1, 0)
                        else np.lib.format.read_array_header_2_0
                    )
                    shape = read(file)[0]
                    rows[member.removesuffix(".npy")] = shape[0] if shape else 0
        return rows

    return _load_checked(path, load)


def _check_complete(path: Path, arrays: Feed, names: Sequence[str], optional: Collection[str]) -> None:
    for name in names:
        if name not in arrays and name not in optional:
            close_matches = get_close_matches(name, arrays, n=1, cutoff=0.5)
            hint = (
                f"did you mean '{close_matches[0]}'?"
                if close_matches
                else f"it has: {', '.join(arrays) or 'nothing'}."
            )
            raise RequestError(f"{path} has no array for the input '{name}'; {hint}")


def _first_samples(path: Path, name: str, array: ndarray, limit: int) -> ndarray:
    if array.ndim and not array.size:
        raise RequestError(f"{path}: the array '{name}' is empty.")
    return array[:limit].copy() if array.ndim else array


# -- arrays --------------------------------------------------------------------------------------


def _npz(path: Path, names: Sequence[str], labels: Collection[str]) -> Feed:
    import numpy as np  # slow to import

    def load() -> Feed:
        _check_compression(path)
        with np.load(path, allow_pickle=False) as archive:
            samples = [name for name in archive.files if name not in labels]
            if len(names) == len(samples) == 1:
                return {names[0]: archive[samples[0]]}
            return {name: archive[name] if name in names else np.empty(0) for name in archive.files}

    return _load_checked(path, load)


_READ_IN_PARTS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
"""Of the others, `zipfile` unpacks any amount to read a few bytes."""


def _check_compression(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
    if any(member.compress_type not in _READ_IN_PARTS for member in members):
        raise RequestError(f"{path} is packed in a way that numpy does not use; save it with numpy.savez.")
    unpacked = sum(member.file_size for member in members)
    packed = max(1, sum(member.compress_size for member in members))
    if unpacked > _MAX_BYTES or (unpacked > _SMALL_BYTES and unpacked > _MAX_RATIO * packed):
        raise RequestError(
            f"{path} would unpack to {unpacked:,} bytes from {packed:,}; give a part of the data, "
            "uncompressed."
        )


def _npy(path: Path, names: Sequence[str], limit: int) -> Feed:
    import numpy as np  # slow to import

    if len(names) != 1:
        raise RequestError(
            f"{path} holds one array, but the model has the inputs {', '.join(names)}; "
            f"write `inputs={names[0] if names else 'name'}={path}`, or save a .npz."
        )

    def load() -> Feed:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        return {names[0]: np.array(array[:limit] if array.ndim else array)}

    return _load_checked(path, load)


def _load_checked(path: Path, load: Callable[[], T]) -> T:
    try:
        return load()
    except RequestError:
        raise
    except Exception as error:  # numpy and zipfile raise a dozen kinds of errors on a damaged file
        if "pickle" in str(error).lower():
            raise RequestError(
                f"{path} holds pickled objects, which are not read; save text as an array of dtype str."
            ) from error
        raise RequestError(f"{path} is damaged, or not what its suffix says; save it again.") from error


# -- samples line by line ------------------------------------------------------------------------


def _jsonl(path: Path, names: Sequence[str], limit: int) -> Feed | list[str]:
    samples = list(islice(json_lines(path), limit))
    if not samples:
        raise RequestError(f"{path} has no samples; write one JSON value a line.")
    texts = [_text_of(sample, names) for _, sample in samples]
    if all(text is not None for text in texts):
        return [text for text in texts if text is not None]
    return _columns(path, samples, names)


def json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the number and the value of each line.

    Raises:
        RequestError: the file cannot be read, or a line is no JSON.
    """
    if not path.is_file():
        raise RequestError(f"There is no data file {path}; check the path given to `inputs`.")
    for number, line in _lines(path):
        try:
            yield number, json.loads(line)
        except (ValueError, RecursionError) as error:
            raise RequestError(f"{path}, line {number}, is not a JSON value: {error}.") from error


def _text_of(sample: Any, names: Sequence[str]) -> str | None:
    if isinstance(sample, dict) and "text" not in names:
        sample = sample.get("text")
    return sample if isinstance(sample, str) else None


def _columns(path: Path, samples: Sequence[tuple[int, Any]], names: Sequence[str]) -> Feed:
    """Stack samples, each an object by input name, or the value of the only input."""
    import numpy as np  # slow to import

    rows: dict[str, list[ndarray]] = {}
    for number, sample in samples:
        if not isinstance(sample, dict) and len(names) != 1:
            raise RequestError(f"{path}, line {number}: write an object with {', '.join(names)}.")
        fields = sample if isinstance(sample, dict) else {names[0]: sample}
        for name in fields.keys() & set(names):
            try:
                rows.setdefault(name, []).append(_array(fields[name]))
            except (ValueError, OverflowError) as error:
                raise RequestError(
                    f"{path}, line {number}: '{name}' is not an array of one shape."
                ) from error
    if not rows:
        _check_complete(path, dict.fromkeys(map(str, samples[0][1]), np.empty(0)), names, ())
    for name, arrays in rows.items():
        if len(arrays) != len(samples) or len({array.shape for array in arrays}) != 1:
            raise RequestError(f"{path}: '{name}' is missing in some lines, or its shape differs among them.")
    return {name: np.stack(arrays) for name, arrays in rows.items()}


def _array(value: Any) -> ndarray:
    import numpy as np  # slow to import

    array = np.asarray(value)
    if array.dtype == object:
        raise ValueError(value)
    return array


def _texts(path: Path, limit: int) -> list[str]:
    """Return the paragraphs of a document, or the lines of any other text."""
    blocks = _paragraphs(path) if path.suffix.lower() in _PARAGRAPHS else (line for _, line in _lines(path))
    texts = list(islice(blocks, limit))
    if not texts:
        raise RequestError(f"{path} holds no text.")
    return texts


def _paragraphs(path: Path) -> Iterator[str]:
    block: list[str] = []
    last_number = 0
    for number, line in _lines(path):
        if block and number > last_number + 1:
            yield " ".join(block)
            block = []
        block.append(line)
        last_number = number
    if block:
        yield " ".join(block)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line that is not blank."""
    if path.stat().st_size > _MAX_BYTES:
        raise RequestError(f"{path} has {path.stat().st_size:,} bytes; give a part of it.")
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                if text := line.strip():
                    yield number, text
    except UnicodeDecodeError as error:
        raise RequestError(
            f"{path} is not UTF-8 text; real data is read from .npz, .npy, .jsonl and text files."
        ) from error
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror}.") from error
