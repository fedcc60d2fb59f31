"""``project://``: a store in the folder of the project, ``.modeldyno/store.db`` beside its pyproject.toml."""

from __future__ import annotations

from pathlib import Path

from modeldyno.plugin import OpensStores, RequestError, Store, open_store


class ProjectStores(OpensStores):
    """Opens the store of a project."""

    def open(self, url: str) -> Store:
        """Open the store of the project that the current directory is in, or of ``project:///folder``.

        A store of another kind of database has the methods of `Store` itself.

        Raises:
            RequestError: it is in no project.
        """
        start = Path(url.removeprefix("project://") or ".").absolute()
        for folder in (start, *start.parents):
            if (folder / "pyproject.toml").is_file():
                (folder / ".modeldyno").mkdir(exist_ok=True)
                return open_store(f"sqlite:///{folder / '.modeldyno' / 'store.db'}")
        raise RequestError(
            f"{start} is in no project; make its pyproject.toml, or set another MODELDYNO_STORE."
        )
