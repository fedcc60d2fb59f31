"""The commands on this machine: its devices, servers, engines and plugins, and the pages of its store."""

from __future__ import annotations

import click

from modeldyno.cli import options as cli_options
from modeldyno.cli import quantity_callback
from modeldyno.cli.declare import declare, load_action
from modeldyno.cli.help_pages import HelpCommand
from modeldyno.cli.output_options import JSON


@declare("devices")
@click.option(
    "--watch",
    "period",
    metavar="TIME",
    callback=quantity_callback("s", bound=True),
    help="Read them again after each TIME, such as 1s, until Ctrl-C.",
)
@click.option(
    "--json",
    "json_path",
    metavar="[PATH]",
    is_flag=False,
    flag_value="-",
    help="Print the JSON document, or save it.",
)
def devices_command() -> None:
    """Show what the GPUs of this machine do now: use, memory, power, temperature, clocks, processes.

    All cards of the driver are shown, with the names that programs have for them, such as cuda:0. A dash is a
    figure that cannot be read.
    """


@declare("serve")
@click.argument("model")
@click.option(
    "--backend",
    help="What serves the model: triton by default, torchserve, mlserver, openai, llamacpp, tensorflow.",
)
@click.option("--device", help="Where the server runs the model: cpu, cuda, cuda:1.")
@click.option("--name", help="By which the server is found again; by default that of the model.")
@click.option("--ports", help="free (by default), conventional, or numbers, such as 8000,8001,8002.")
@cli_options.KNOBS
@cli_options.INPUTS
@cli_options.TRUST
@click.option("--detach", is_flag=True, help="Leave the server running; modeldyno servers stop ends it.")
def serve_command() -> None:
    """Start a server for MODEL and leave it running, until Ctrl-C or modeldyno servers stop.

    It is started as modeldyno load MODEL starts one, and found by its name: modeldyno load NAME. However this
    command ends, the server ends with it, unless --detach was given.
    """


@click.group(name="servers", invoke_without_command=True)
@click.option("--stats", is_flag=True, help="Also measure what the processes of each use.")
@JSON
@click.pass_context
def servers_command(ctx: click.Context, *, stats: bool, json_path: str | None) -> None:
    """List the servers that run: name, model, backend, URL, since when.

    They are those that modeldyno serve has started, and containers of Docker or Podman that publish a port.
    modeldyno load takes the name of any of them.
    """
    if ctx.invoked_subcommand is None:
        load_action("servers.list_servers")(json_path, stats=stats)


@declare("stop", within=servers_command)
@click.argument("names", nargs=-1)
@click.option("--all", "all_servers", is_flag=True, help="Stop every server of this user on this machine.")
def _stop() -> None:
    """Stop the servers NAMES, with all of their processes."""


@click.group(name="engine", no_args_is_help=True)
def engine_command() -> None:
    """Install serving engines without Docker, each into its own environment."""


@declare("install", "engine.install_engine", within=engine_command)
@click.argument("name")
@click.option(
    "--with", "options", multiple=True, metavar="WHAT", help="Optional part to install, such as torch."
)
def _install_engine() -> None:
    """Install the engine NAME: triton, torchserve, mlserver, openai or llamacpp.

    An interrupted installation is resumed. The environment variable MODELDYNO_ENGINES sets the directory.
    """


@declare("run", "engine.run_engine", within=engine_command, context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def _run_engine() -> None:
    """Run COMMAND with the libraries of the engine NAME, such as tritonserver --model-repository=DIR.

    tritonserver finds the backends that were installed with it.
    """


@declare("list", "engine.list_engines", within=engine_command)
def _list_engines() -> None:
    """List the installed engines, with versions and sizes."""


@declare("path", "engine.print_path", within=engine_command)
@click.argument("name")
def _print_path() -> None:
    """Print the directory of the engine NAME; removing it uninstalls it."""


class _Plugins(HelpCommand, click.Group):
    """``plugins probes`` is ``plugins list probes``."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        return super().resolve_command(ctx, args if args[0] in self.commands else ["list", *args])


@click.group(
    name="plugins",
    cls=_Plugins,
    invoke_without_command=True,
    subcommand_metavar="[NAME] | COMMAND ...",
)
@click.pass_context
def plugins_command(ctx: click.Context) -> None:
    """List the installed plugins, the knobs of a backend, or all metrics; or write a package of new ones.

    NAME is a kind of plugin (probes), a backend (onnxruntime), or metrics.
    """
    if ctx.invoked_subcommand is None:
        load_action("plugins.list")(None)


@declare("list", "plugins.list", within=plugins_command)
@click.argument("name", required=False)
def _list_plugins() -> None:
    """List the installed plugins, or what NAME has, as modeldyno plugins NAME does."""


@declare("new", within=plugins_command)
@click.argument("name")
@click.option(
    "--kind", "kinds", multiple=True, required=True, metavar="KIND",
    help="Of the plugin: loader, backend, probe, reporter, ...",
)  # fmt: skip
@click.option("-o", "--output", "folder", metavar="DIR", help="A new folder; by default NAME.")
def _new_plugins() -> None:
    """Write a package NAME with a plugin that works, and the tests that it passes.

    modeldyno plugins lists the kinds; several make a package of several plugins.
    """


@declare("ui")
@click.option("--port", type=click.IntRange(0, 65535), default=8500, show_default=True, help="Port; 0: any.")
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen at; others need --token-file."
)
@click.option(
    "--token-file", metavar="FILE", help="Ask for a token of this file, which is made if there is none."
)
@click.option(
    "--allow-host",
    "allow_hosts",
    multiple=True,
    metavar="NAME",
    help="Another name that browsers reach it by.",
)
@click.option("--open", "open_browser", is_flag=True, help="Open it in the browser.")
@click.option("--export", metavar="DIR", help="Write all pages as files into a new folder instead.")
def ui_command() -> None:
    """Show what the store has in a browser, until Ctrl-C."""
