"""How a command is declared: a function without a body has its help and its options, and names its action."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from modeldyno.cli.help_pages import HelpCommand

if TYPE_CHECKING:
    from collections.abc import Callable


def declare(
    name: str,
    action: str = "",
    *,
    within: click.Group | None = None,
    cls: type[click.Command] = HelpCommand,
    **settings: Any,
) -> Callable[[Callable[[], None]], click.Command]:
    """Return a decorator that makes a command of a function with a docstring and options.

    Args:
        name: of the command.
        action: what it calls, as for `load_action`; by default ``run`` in the module of its name, or the
            function of its name in the module of its group.
        within: the group that the command belongs to.
        cls: class of a command that belongs to none.
        settings: further arguments of the class.
    """
    path = action or (f"{name}.run" if within is None else f"{within.name}.{name}")

    def act(**options: Any) -> None:
        code = load_action(path)(**options)
        if code is not None:
            click.get_current_context().exit(code)

    def make(declaration: Callable[[], None]) -> click.Command:
        act.__doc__ = declaration.__doc__
        act.__click_params__ = getattr(declaration, "__click_params__", [])  # type: ignore[attr-defined]
        if within is not None:
            return within.command(name=name, **settings)(act)
        return click.command(name=name, cls=cls, **settings)(act)

    return make


def load_action(path: str) -> Any:
    """Return a function of `modeldyno.cli.actions`, which is imported now, so that ``--help`` imports none.

    The action of a command takes its options by their names, and returns an exit code, or None for 0.

    Args:
        path: module and function, such as ``profile.run``.
    """
    module, _, function = path.partition(".")
    return getattr(import_module(f"modeldyno.cli.actions.{module}"), function)
