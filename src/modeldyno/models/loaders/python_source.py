"""Python code that the user names (``pkg.mod:attribute``, ``file.py:attribute``), imported in process."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
import traceback
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError, UnknownName

if TYPE_CHECKING:
    from collections.abc import Callable

_NAMED_IN_FILE = re.compile(r".+\.py:[A-Za-z_][\w.]*", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonObject:
    """An attribute of an imported Python module."""

    module: ModuleType
    attribute: str
    value: Any
    label: str
    """Display name: ``mod.attribute``."""


def is_named_in_file(path: Path) -> bool:
    """Whether a path has the form ``file.py:attribute``."""
    return _NAMED_IN_FILE.fullmatch(str(path)) is not None


def import_object(scheme: str, locator: str) -> PythonObject:
    """Import what a locator names; the current directory is importable.

    Raises:
        RequestError: there is no such module, file or attribute, or importing it raised.
    """
    where, separator, attribute = locator.rpartition(":")
    if not separator or not where or not attribute:
        raise RequestError(
            f"'{scheme}:{locator}' names no attribute; "
            f"write {scheme}:package.module:name or {scheme}:file.py:name."
        )
    module = _from_file(Path(where)) if where.endswith(".py") else _from_module(where)
    label = f"{Path(where).stem if where.endswith('.py') else where.rpartition('.')[2]}.{attribute}"
    return PythonObject(
        module=module, attribute=attribute, value=_attribute(module, where, attribute), label=label
    )


def required_parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    """Name the required parameters; none if the signature is unknown."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()
    return tuple(p.name for p in parameters if p.default is p.empty and p.kind not in _VARIADIC)


def parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    """Name the parameters that take a single argument, in order; none if the signature is unknown."""
    try:
        known = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()
    return tuple(p.name for p in known if p.kind not in _VARIADIC)


def takes_others(function: Callable[..., Any]) -> bool:
    """Whether it takes more than its parameters name: ``*args`` or ``**kwargs``."""
    try:
        known = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(p.kind in _VARIADIC for p in known)


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def source_code(value: Any) -> bytes:
    """Return the source of a function or class, or else its byte code."""
    try:
        return inspect.getsource(value).encode()
    except (OSError, TypeError):
        code = getattr(value, "__code__", None)
        return b"" if code is None else bytes(code.co_code) + repr(code.co_consts).encode()


def _from_module(name: str) -> ModuleType:
    _make_importable(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(missing + "."):
            raise RequestError(
                f"There is no Python module '{missing}' to import; name an installed one, one in the current "
                "directory, or a file as file.py:name."
            ) from error
        raise _import_error(name, error) from error
    except (Exception, SystemExit) as error:
        raise _import_error(name, error) from error


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise RequestError(f"There is no file '{path}'; give the path of a Python file, as file.py:name.")
    _make_importable(path.resolve().parent)
    path = path.resolve()
    name = f"modeldyno_source_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}_{path.stem}"
    loader = _FromSource(name, str(path))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _import_error(path.name, error, path) from error
    return module


class _FromSource(SourceFileLoader):
    """Compiles the file as it is now.

    Python takes cached bytecode for a file of the same size and the same second, so that an edit within
    that second, or one by a tool that sets the time of its files, would be measured as what it replaced.
    """

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


def _make_importable(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    importlib.invalidate_caches()


def _import_error(name: str, error: BaseException, path: Path | None = None) -> RequestError:
    """Return an error that says where and why importing failed, preferably in the named file."""
    if isinstance(error, SyntaxError):
        location = f"{error.filename}:{error.lineno}"
    else:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if "importlib" not in f.filename]
        frames = [f for f in frames if path is None or f.filename == str(path)] or frames
        frames = [f for f in frames if f.filename != __file__] or frames
        location = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else name
    reason = str(error.msg if isinstance(error, SyntaxError) else error)
    lines = reason.strip().splitlines() or ["no message"]
    return RequestError(
        f"Importing '{name}' failed at {location} with {type(error).__name__}: {lines[0]}; correct it there."
    )


def _attribute(module: ModuleType, where: str, dotted: str) -> Any:
    value: Any = module
    for part in dotted.split("."):
        if not hasattr(value, part):
            public = [n for n in dir(value) if not n.startswith("_") and _is_public_attribute(value, n)]
            raise UnknownName.among(f"object in {where} called", part, public)
        value = getattr(value, part)
    return value


def _is_public_attribute(owner: Any, name: str) -> bool:
    value = getattr(owner, name, None)
    defined = getattr(value, "__module__", None)
    return not isinstance(value, ModuleType) and (
        not isinstance(owner, ModuleType) or defined in {None, owner.__name__} or not callable(value)
    )
