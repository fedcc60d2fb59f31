"""Job files from Python: run the jobs of a file, and write down the job of a result."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from modeldyno.base.errors import RequestError
from modeldyno.exchange.views import job_text
from modeldyno.profiling.api.error_wording import reword_errors
from modeldyno.profiling.api.profile import as_tuple
from modeldyno.profiling.job_file import read_jobs
from modeldyno.stores.lookup import find_any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modeldyno.base.document import StoredDocument
    from modeldyno.base.result.result import Result
    from modeldyno.sweeps.study.study import Study

_REFUSED = 2
_COMMAND = (sys.executable, "-m", "modeldyno")


def run(file: str | Path, *options: str) -> list[StoredDocument | None]:
    """Run the jobs of a YAML file one after the other, as ``modeldyno run JOBS.yaml`` does.

    The command line runs in a process of its own, in this directory and with this store.

    Args:
        file: the file, perhaps with the numbers of some jobs: ``"jobs.yaml#2"``, ``"jobs.yaml#3-"``.
        options: further options of each job, as they are typed: ``"--max-time", "5s"``.

    Returns:
        The document of each job, in the order of the file; None for one that failed or makes none.

    Raises:
        RequestError: the file or an option is wrong; nothing was measured.
    """
    jobs = read_jobs(str(file))
    with TemporaryDirectory(prefix="modeldyno-jobs-") as folder:
        command = (*_COMMAND, "run", "--json", folder, str(file), *options)
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        paths = [Path(folder) / f"{job.number}.json" for job in jobs]
        if done.returncode == _REFUSED and not any(path.exists() for path in paths):
            lines = done.stderr.strip().splitlines() or ["The jobs were refused."]
            raise RequestError(lines[-1].removeprefix("modeldyno: "))
        return [find_any(str(path)) if path.exists() else None for path in paths]


@reword_errors
def job_of(result: Result | Study | str | Path, *, require: str | Sequence[str] = ()) -> str:
    """Return the text of the YAML file that measures a result or a study again: ``modeldyno show --job``.

    Args:
        result: the document, a file, or an id or tag of the store.
        require: bounds that the file is to have, for a Result; a Study has its own.

    Raises:
        RequestError: it was measured in a script, or follows from several results.
    """
    document = find_any(str(result)) if isinstance(result, str | Path) else result
    return job_text.job_text(document, as_tuple(require, "require"))


def read_job_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a file of jobs, or of a job of one command, from the command line."""
    done = subprocess.run((*_COMMAND, "schema", name), capture_output=True, text=True, check=True)
    schema: dict[str, Any] = json.loads(done.stdout)
    return schema
