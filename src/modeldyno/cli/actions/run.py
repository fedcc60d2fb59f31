"""What ``modeldyno run`` does."""

from __future__ import annotations

import atexit
import builtins
import os
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import click

from modeldyno.base import plugins
from modeldyno.base.codec import check_directory
from modeldyno.base.errors import ModelDynoError, RequestError
from modeldyno.base.stats.sanitize import clean
from modeldyno.base.views.text import count
from modeldyno.cli.actions import job_run
from modeldyno.profiling.job_file import check_job_numbers, is_job_address
from modeldyno.regions.recorder import AtExit, profiled

_RAISED, _INTERRUPTED = 1, 130
"""Exit codes of Python for a script that raised, or was ended by Ctrl-C."""


def run(script: str, arguments: tuple[str, ...], json_path: str | None, *, ops: bool) -> None:
    """Run a script and report its profiled functions, or run the jobs of a file; exit with the code.

    With `ops` the whole script is a region as well, whose lines and operators are reported.
    """
    if is_job_address(script):
        if ops:
            raise RequestError("--ops is for a script; a job has its own probes, such as --probe ops.")
        job_run.run(script, arguments, json_path)
    check_job_numbers(script)
    path = Path(script)
    if not path.is_file():
        problem = f"'{script}' is a directory" if path.is_dir() else f"There is no file '{script}'"
        raise RequestError(f"{problem}; give the path of a Python script.")
    if json_path == "-":
        raise RequestError("Standard output belongs to the script; give --json the path of a file.")
    if json_path is not None:
        check_directory(Path(json_path))
    if ops:
        plugins.require(("torch",), "option --ops")
    # Registered first, it runs last: after the threads and the exit functions of the script.
    atexit.register(_print_summary, os.getpid(), None if json_path is None else Path(json_path).resolve())
    profiled.at_exit = AtExit.NOTHING  # the summary is all that is printed
    profiled.enable()
    _execute(path, [script, *arguments], follow=ops)


def _execute(path: Path, arguments: list[str], *, follow: bool) -> NoReturn:
    """Run a script as ``__main__``, and exit with its code."""
    module = ModuleType("__main__")
    file = str(path.absolute())
    module.__dict__.update(__file__=file, __builtins__=builtins, __cached__=None, __annotations__={})
    sys.modules["__main__"] = module
    sys.argv[:] = arguments
    if not sys.flags.safe_path:
        sys.path[0] = str(path.resolve().parent)
    end = profiled.follow_script(path.name) if follow else None
    try:
        exec(compile(path.read_bytes(), file, "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - the user's own script
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 - any error is shown as Python shows it
        _drop_own_frames(error)
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(_INTERRUPTED if isinstance(error, KeyboardInterrupt) else _RAISED)
    finally:
        if end is not None:
            end()
    sys.exit(0)


def _drop_own_frames(error: BaseException) -> None:
    """Remove the frames of this file from the traceback."""
    while error.__traceback__ is not None and error.__traceback__.tb_frame.f_code.co_filename == __file__:
        error.__traceback__ = error.__traceback__.tb_next


def _left_running() -> list[str]:
    """Name the processes of the script that will outlive it; those of multiprocessing end with this one."""
    import psutil  # not before the script is over

    names = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it has ended meanwhile
            own = any("multiprocessing." in word for word in process.cmdline())
            if not own and process.status() != psutil.STATUS_ZOMBIE:
                names.append(clean(f"{process.name()} (pid {process.pid})"))
    return names


def _print_summary(process: int, json_path: Path | None) -> None:
    """Print the tables and save the document, unless in a forked child of the script."""
    if os.getpid() != process:
        return
    from modeldyno.base import codec  # not before the script is over
    from modeldyno.regions.summary import render_text

    profiled.disable()
    result = profiled.result()
    with suppress(ValueError, OSError):  # the script may have closed it
        sys.stdout.flush()
    click.echo(f"\n{render_text(result)}", err=True, nl=False)
    if left := _left_running():
        named = f"{left[0]}{f' and {len(left) - 1:,} more' if left[1:] else ''}"
        click.echo(
            f"\nThe script left {count(len(left), 'process', 'processes')} running: {named}.", err=True
        )
    if json_path is None:
        return
    try:
        codec.write(json_path, codec.encode(result))
        click.echo(f"\nSaved to {json_path}.", err=True)
    except ModelDynoError as error:
        click.echo(f"modeldyno: {error}", err=True)
