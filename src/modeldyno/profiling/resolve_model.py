"""Resolve a user's word to a model: a reference, a path, or a directory with one model; executes nothing.

A version of MLflow's registry is fetched first, and stands for its file; so is ``s3://bucket/model.onnx``.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

from modeldyno.base import plugins
from modeldyno.base.errors import RequestError, UnknownName
from modeldyno.base.job.input_spec import InputSpec
from modeldyno.base.job.model_ref import ModelRef
from modeldyno.base.stats.sanitize import clean, is_writable_text
from modeldyno.engine.environment.containers import find_container
from modeldyno.engine.environment.running_servers import running_inputs, running_url
from modeldyno.profiling import mlflow_version
from modeldyno.profiling.packages import SUFFIX, inputs_beside, is_package, open_package
from modeldyno.profiling.remote_files import fetch_remote, is_remote
from modeldyno.profiling.unrecognised import explain_unrecognised
from modeldyno.registry.registered_version import find_registered

_WHOLE_DIRECTORY = ("hf", "repository", "savedmodel")
"""Loaders for which a directory as a whole is one model."""
_MODEL_FILES = frozenset({".onnx", ".pt", ".pth", ".pt2", ".ts", ".torchscript", ".jit"})
"""Suffixes of model files in a directory; tokenizers and external data may lie beside them."""
_IN_MODULE = re.compile(r"(?P<module>[A-Za-z_][\w.]*):(?P<name>[A-Za-z_][\w.]*)")
_IN_FILE = re.compile(r"(?P<file>.+\.py):(?P<name>[A-Za-z_]\w*)[\w.]*", re.DOTALL)
_SERVER = re.compile(r"(?P<place>[\w.-]+:\d+)(?:[/#](?P<model>.*))?")
"""The address of a server without ``http://``."""
_DEFINED = re.compile(r"^(?:async )?(?:def|class) ([A-Za-z]\w*)", re.MULTILINE)
_DYNAMIC_NAMES = re.compile(r"import \*|\b(?:__getattr__|globals|vars|exec|setattr)\b")
"""Code that may give a module names that do not appear in it."""
_LISTED = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedModel:
    """What a user's word stands for."""

    ref: ModelRef
    inputs: tuple[str | InputSpec, ...] = ()
    """What it takes, where it does not say so: of a server that we started, or of a registered model."""
    name: str | None = None
    """Of a registered model."""


def resolve_model(text: str) -> ResolvedModel:
    """Parse a reference; a bare path is resolved by suffix and content.

    Where there is no such path, the name of a running server stands for its URL, that of a registered model
    for its version (`find_registered`), and that of a container of Docker or Podman for its URL, also with a
    model: ``name#model``.

    A package (`packages`) stands for the model in it, with the inputs that it is measured with.

    A directory that is not a model as a whole stands for the single model file in it.

    Raises:
        RequestError: the path does not exist, no loader claims it, a directory holds several models, or a
            Python file does not contain the name.
        MissingExtra: it is a version of MLflow's registry, or a URL of an object store, and the package that
            reads it is not installed.
        StoreError: it may be a registered model, and the registry cannot be read; or the object store cannot.
    """
    if text.endswith(SUFFIX) and is_package(Path(text)):
        record, file = open_package(Path(text))
        ref = replace(_parse(f"{record.scheme}:{file}"), registered=text)
        return ResolvedModel(ref=ref, inputs=inputs_beside(record, file), name=record.name)
    if not _may_be_name(text):
        return ResolvedModel(ref=_parse(text))
    if (url := running_url(text)) is not None:
        return ResolvedModel(ref=ModelRef.parse(url), inputs=running_inputs(text))
    if (registered := find_registered(text)) is not None:
        ref = replace(_parse(registered.reference), registered=registered.registered)
        return ResolvedModel(ref=ref, inputs=registered.inputs, name=registered.name)
    if (url := _container_url(text)) is not None:
        return ResolvedModel(ref=ModelRef.parse(url))
    return ResolvedModel(ref=_parse(text))


def resolve_reference(text: str) -> ModelRef:
    """Return the reference of a model alone; raise as `resolve_model` does."""
    return resolve_model(text).ref


def _may_be_name(text: str) -> bool:
    """Return whether a word is no path, no reference and no address, so that it may be a name."""
    ref = ModelRef.parse(text)
    with suppress(OSError, ValueError):
        if Path(ref.locator).exists() or Path(text).exists():
            return False
    return not ref.scheme and _as_file_reference(text) is None


def _parse(text: str) -> ModelRef:
    ref = ModelRef.parse(text)
    if ref.scheme == mlflow_version.SCHEME:
        version = mlflow_version.fetch_mlflow_version(text)
        return replace(version.ref, registered=version.reference)
    if (remote := next(filter(is_remote, (text, ref.locator)), None)) is not None:
        return _fetched(text, remote, "" if remote == text else ref.scheme)
    schemes = plugins.names("loader")
    _check_kind_of_file(Path(ref.locator))
    if ref.scheme in schemes:
        return _check_file_reference(ref)
    if (corrected := _as_file_reference(text)) is not None:
        raise RequestError(f"'{text}' names no file; for {corrected.partition(':')[0]} write {corrected}.")
    path = Path(ref.locator)
    if not Path(text).exists() and (server := _SERVER.fullmatch(text)):
        address = f"http://{server['place']}#{server['model'] or 'MODEL'}"
        raise RequestError(f"There is no file '{text}'; for a server write its URL: {address}.")
    if ref.scheme:
        return ref  # looking up its loader suggests the nearest name
    return _check_file_reference(
        _claimed_by_loader(path, ref.locator)
        or _model_in_directory(path, text)
        or _raise_not_found(path, text)
    )


def _fetched(text: str, remote: str, scheme: str) -> ModelRef:
    """Return the reference to the files of an object store on this machine, which keeps the user's word."""
    url, mark, entry = remote.partition("#")
    ref = _parse(f"{f'{scheme}:' if scheme else ''}{fetch_remote(url)}{mark}{entry}")
    return replace(ref, registered=text)


def refers_to_model(text: str) -> bool:
    """Return whether a word has a scheme, is the path of a single model, or a registered name."""
    ref = ModelRef.parse(text)
    path = Path(ref.locator)
    with suppress(RequestError):  # a directory with several models
        return (
            bool(ref.scheme)
            or is_package(path)
            or (_claimed_by_loader(path, ref.locator) or _model_in_directory(path, text)) is not None
            or (_may_be_name(text) and find_registered(text) is not None)
        )
    return False


def names_model(word: str) -> bool:
    """Return whether a word names a model: a reference, a path or a registered name that is no document."""
    path = Path(word)
    if path.suffix == ".json" and path.is_file():
        return False
    return path.exists() or (refers_to_model(word) and not _is_document(word))


def _is_document(word: str) -> bool:
    """Return whether a word without a mark of its own is an id, a tag or the name of a stored document."""
    if set(word) & set("/@: "):
        return False
    from modeldyno.stores.lookup import find_any  # slow, and only registered names need it

    with suppress(RequestError):
        find_any(word)
        return True
    return False


def _check_file_reference(ref: ModelRef) -> ModelRef:
    """Refuse ``file.py:name`` if there is no such file, or if it does not contain the name.

    Raises:
        RequestError: in that case, which otherwise a comparison would find only after measuring one side.
    """
    match = _IN_FILE.fullmatch(ref.locator)
    if match is None:
        return ref
    path, name = Path(match["file"]), match["name"]
    if not path.is_file():
        raise RequestError(f"There is no file '{path}'; give the path of a Python file, as file.py:name.")
    code = path.read_text(encoding="utf-8", errors="replace")
    if not re.search(rf"\b{name}\b", code) and not _DYNAMIC_NAMES.search(code):
        raise UnknownName.among(f"object in {path} called", name, _DEFINED.findall(code))
    return ref


def _check_kind_of_file(path: Path) -> None:
    """Refuse what can be read only once, or for ever: a named pipe, a socket, a device.

    Raises:
        RequestError: in that case, or the name is not UTF-8, as no document could name the file then.
    """
    with suppress(OSError, ValueError):  # a name that no file system takes is no such file
        if path.exists() and not is_writable_text(str(path)):
            raise RequestError(f"The name of '{clean(str(path))}' is not UTF-8; rename it, or link to it.")
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise RequestError(f"'{path}' is a pipe, a socket or a device; a model is a file or a directory.")


def _claimed_by_loader(path: Path, locator: str) -> ModelRef | None:
    """Find the loader that claims a path; a directory is offered only to those that take it as one model."""
    _check_kind_of_file(path)
    whole = path.is_dir()
    answers = plugins.answers("loader", lambda loader: loader.claims(path))
    scheme = next(
        (name for name, claims in answers if claims and (name in _WHOLE_DIRECTORY or not whole)), None
    )
    return None if scheme is None else ModelRef(scheme=scheme, locator=locator)


def _model_in_directory(path: Path, text: str) -> ModelRef | None:
    """Return the model in a directory: its only model file, or the one its configuration describes.

    Raises:
        RequestError: it holds several models.
    """
    if not path.is_dir():
        return None
    files = [file for file in sorted(path.iterdir()) if file.suffix.lower() in _MODEL_FILES]
    models = [ref for ref in (_claimed_by_loader(file, str(file)) for file in files) if ref is not None]
    if len(models) > 1:
        names = [Path(ref.locator).name for ref in models]
        more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
        raise RequestError(
            f"'{text}' holds {len(names)} models: {', '.join(names[:_LISTED])}{more}; name one of them, "
            f"such as {models[0].locator}."
        )
    if models:
        return models[0]
    answers = plugins.answers("loader", lambda loader: loader.claims(path))
    scheme = next((name for name, claims in answers if claims), None)
    return None if scheme is None else ModelRef(scheme=scheme, locator=str(path))


def _container_url(text: str) -> str | None:
    """Return the URL of the server in a running container, ``name`` or ``name#model``; None if there is none.

    Raises:
        RequestError: the container publishes no port.
    """
    name, mark, model = text.partition("#")
    container = find_container(name)
    if container is None:
        return None
    if container.url is None:
        raise RequestError(
            f"The container '{name}' publishes no port of its server; start it with --publish, such as "
            "--publish 127.0.0.1:8000:8000."
        )
    return f"{container.url.partition('#')[0]}#{model}" if mark else container.url


def _raise_not_found(path: Path, text: str) -> ModelRef:
    schemes = plugins.names("loader")
    if path.exists():
        raise RequestError(f"'{text}' {explain_unrecognised(path, schemes)}.")
    if match := _IN_MODULE.fullmatch(text):
        raise RequestError(
            f"There is no file or directory '{text}'; for an object of an installed module write "
            f"torch:{text} (a torch module, or a factory of one) or call:{text} (any function), for one in a "
            f"file {match['module'].replace('.', '/')}.py:{match['name']}."
        )
    folder, _, entry = text.partition("#")
    if entry and (inside := Path(folder) / entry).is_dir():
        raise RequestError(
            f"'{inside}' has no config.pbtxt, from which the model's inputs are read; save the one that "
            "Triton completes there (GET /v2/models/NAME/config), or give the model's own file, such "
            f"as {inside / '1' / 'model.onnx'}."
        )
    if path.is_symlink():
        raise RequestError(f"'{text}' is a link to a file that does not exist: {path.readlink()}.")
    if path.suffix or len(path.parts) > 1:
        nearest = next(iter(get_close_matches(path.name, _names_in(path.parent))), "")
        hint = f"did you mean '{path.parent / nearest}'?" if nearest else "check the path."
        raise RequestError(f"There is no file or directory '{text}'; {hint}")
    raise RequestError(
        f"There is no file or directory '{text}'; check the path, or write scheme:locator with one of "
        f"{', '.join(schemes)}."
    )


def _names_in(folder: Path) -> list[str]:
    """Return the names in a folder; none if it cannot be read."""
    try:
        return [path.name for path in folder.iterdir()]
    except OSError:
        return []


def _as_file_reference(text: str) -> str | None:
    """Return ``file.py:name`` for ``file:name``, if there is such a file."""
    match = _IN_MODULE.fullmatch(text)
    if match is None:
        return None
    file = Path(f"{match['module'].replace('.', '/')}.py")
    return f"{file}:{match['name']}" if file.is_file() else None
