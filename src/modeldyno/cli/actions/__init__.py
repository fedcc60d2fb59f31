"""What the commands do, one module a command; each is imported when it is first used.

A declaration calls ``actions.profile.run(...)``, which imports ``profile``: ``--help`` imports none.
No action imports a declaration.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from modeldyno.cli.actions import (
        advise,
        check,
        comment,
        compare,
        convert,
        devices,
        doctor,
        engine,
        explain,
        export,
        gate_options,
        import_,
        inspect,
        list_,
        load,
        options,
        plugins,
        profile,
        reconcile,
        registry,
        report,
        rm,
        run,
        schema,
        serve,
        servers,
        show,
        sweep,
        tag,
        trend,
        ui,
        verify,
        worker,
    )

__all__ = [
    "advise",
    "check",
    "comment",
    "compare",
    "convert",
    "devices",
    "doctor",
    "engine",
    "explain",
    "export",
    "gate_options",
    "import_",
    "inspect",
    "list_",
    "load",
    "options",
    "plugins",
    "profile",
    "reconcile",
    "registry",
    "report",
    "rm",
    "run",
    "schema",
    "serve",
    "servers",
    "show",
    "sweep",
    "tag",
    "trend",
    "ui",
    "verify",
    "worker",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return import_module(f"{__name__}.{name}")
