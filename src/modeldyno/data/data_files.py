"""Files of real data to rows: .npz, .npy, .jsonl, and text.

What comes out is either named arrays whose first axis counts samples, or a list of texts that still
have to go through a tokenizer. A file is data: pickles in it are refused, sizes are checked first.
"""

from __future__ import annotations

import json
import zipfile
from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING, Any

from modeldyno.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from pathlib import Path

    from numpy import ndarray

    from modeldyno.interfaces import Feed

_LARGEST = 2 * 2**30
"""Bytes, unpacked; more is not read into memory."""
_SQUEEZED = 1000
"""A larger file that claims to have been packed more tightly than this is no data."""
_SMALL = 64 * 2**20
"""Bytes, unpacked; below this it does not matter how tightly a file is packed."""
_PARAGRAPHS = (".md", ".markdown", ".rst")


def read(path: Path, names: Sequence[str], limit: int, optional: Collection[str] = ()) -> Feed | list[str]:
    """Read up to `limit` samples for the inputs `names`; arrays under other names are left alone.

    Raises:
        RequestError: the file is missing, damaged or too large, or lacks an input that is not optional.
    """
    if not path.is_file():
        raise RequestError(f"There is no data file {path}; check the path given to --input.")
    match path.suffix.lower():
        case ".npz":
            found = _npz(path, names)
        case ".npy":
            found = _npy(path, names, limit)
        case ".jsonl" | ".ndjson":
            samples = _jsonl(path, names, limit)
            if isinstance(samples, list):
                return samples
            found = samples
        case ".json":
            raise RequestError(f"{path} is one JSON document; write one sample a line, and name it .jsonl.")
        case _:
            return _texts(path, limit)
    _complete(path, found, names, optional)
    return {name: _sliced(path, name, found[name], limit) for name in names if name in found}


def _complete(path: Path, found: Feed, names: Sequence[str], optional: Collection[str]) -> None:
    for name in names:
        if name not in found and name not in optional:
            near = get_close_matches(name, found, n=1, cutoff=0.5)
            hint = f"did you mean '{near[0]}' by it?" if near else f"it has: {', '.join(found) or 'nothing'}."
            raise RequestError(f"{path} has no array for the input '{name}'; {hint}")


def _sliced(path: Path, name: str, array: ndarray, limit: int) -> ndarray:
    if array.ndim and not array.size:
        raise RequestError(f"{path}: the array '{name}' is empty.")
    return array[:limit].copy() if array.ndim else array


# -- arrays --------------------------------------------------------------------------------------


def _npz(path: Path, names: Sequence[str]) -> Feed:
    import numpy as np  # noqa: PLC0415 - dear at start-up

    def load() -> Feed:
        _refuse_bomb(path)
        with np.load(path, allow_pickle=False) as archive:
            if len(names) == len(archive.files) == 1:
                return {names[0]: archive[archive.files[0]]}
            return {name: archive[name] if name in names else np.empty(0) for name in archive.files}

    return _undamaged(path, load)


def _refuse_bomb(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
    unpacked = sum(member.file_size for member in members)
    packed = max(1, sum(member.compress_size for member in members))
    if unpacked > _LARGEST or (unpacked > _SMALL and unpacked > _SQUEEZED * packed):
        raise RequestError(
            f"{path} would unpack to {unpacked:,} bytes from {packed:,}; give a part of the data, unpacked."
        )


def _npy(path: Path, names: Sequence[str], limit: int) -> Feed:
    import numpy as np  # noqa: PLC0415 - dear at start-up

    if len(names) != 1:
        raise RequestError(
            f"{path} holds one array, but the model has the inputs {', '.join(names)}; "
            f"write --input {names[0] if names else 'name'}={path}, or save a .npz."
        )

    def load() -> Feed:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        return {names[0]: np.array(array[:limit] if array.ndim else array)}

    return _undamaged(path, load)


def _undamaged(path: Path, load: Callable[[], Feed]) -> Feed:
    try:
        return load()
    except RequestError:
        raise
    except Exception as error:  # numpy and zipfile raise a dozen kinds over a damaged file
        if "pickle" in str(error).lower():
            raise RequestError(
                f"{path} holds pickled objects, which are not read; save text as an array of dtype str."
            ) from error
        raise RequestError(f"{path} is damaged, or not what its suffix says; save it again.") from error


# -- samples line by line ------------------------------------------------------------------------


def _jsonl(path: Path, names: Sequence[str], limit: int) -> Feed | list[str]:
    samples = list(islice(_json_lines(path), limit))
    if not samples:
        raise RequestError(f"{path} has no samples; write one JSON value a line.")
    texts = [_text_of(sample, names) for _, sample in samples]
    if all(text is not None for text in texts):
        return [text for text in texts if text is not None]
    return _columns(path, samples, names)


def _json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    for number, line in _lines(path):
        try:
            yield number, json.loads(line)
        except (ValueError, RecursionError) as error:
            raise RequestError(f"{path}, line {number}, is no JSON value: {error}.") from error


def _text_of(sample: Any, names: Sequence[str]) -> str | None:
    if isinstance(sample, dict) and "text" not in names:
        sample = sample.get("text")
    return sample if isinstance(sample, str) else None


def _columns(path: Path, samples: Sequence[tuple[int, Any]], names: Sequence[str]) -> Feed:
    """Stack samples, each an object by input name, or the value of the only input."""
    import numpy as np  # noqa: PLC0415 - dear at start-up

    rows: dict[str, list[ndarray]] = {}
    for number, sample in samples:
        if not isinstance(sample, dict) and len(names) != 1:
            raise RequestError(f"{path}, line {number}: write an object with {', '.join(names)}.")
        fields = sample if isinstance(sample, dict) else {names[0]: sample}
        for name in fields.keys() & set(names):
            try:
                rows.setdefault(name, []).append(_array(fields[name]))
            except (ValueError, OverflowError) as error:
                raise RequestError(f"{path}, line {number}: '{name}' is no array of one shape.") from error
    if not rows:
        _complete(path, dict.fromkeys(map(str, samples[0][1]), np.empty(0)), names, ())
    for name, arrays in rows.items():
        if len(arrays) != len(samples) or len({array.shape for array in arrays}) != 1:
            raise RequestError(f"{path}: '{name}' is missing in some lines, or its shape differs among them.")
    return {name: np.stack(arrays) for name, arrays in rows.items()}


def _array(value: Any) -> ndarray:
    import numpy as np  # noqa: PLC0415 - dear at start-up

    array = np.asarray(value)
    if array.dtype == object:
        raise ValueError(value)
    return array


def _texts(path: Path, limit: int) -> list[str]:
    """Give the paragraphs of a document, or the lines of any other text."""
    blocks = _paragraphs(path) if path.suffix.lower() in _PARAGRAPHS else (line for _, line in _lines(path))
    found = list(islice(blocks, limit))
    if not found:
        raise RequestError(f"{path} holds no text.")
    return found


def _paragraphs(path: Path) -> Iterator[str]:
    block: list[str] = []
    before = 0
    for number, line in _lines(path):
        if block and number > before + 1:
            yield " ".join(block)
            block = []
        block.append(line)
        before = number
    if block:
        yield " ".join(block)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Give the number and the text of each line that is not blank."""
    if path.stat().st_size > _LARGEST:
        raise RequestError(f"{path} has {path.stat().st_size:,} bytes; give a part of it.")
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                if text := line.strip():
                    yield number, text
    except UnicodeDecodeError as error:
        raise RequestError(
            f"{path} is no text in UTF-8; real data is read from .npz, .npy, .jsonl and text files."
        ) from error
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror}.") from error
