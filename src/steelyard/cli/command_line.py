"""How commands are found and how they fail: a line on stderr for each mistake and exit code 2, never a traceback."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from typing import Any, NoReturn, TextIO

import click

from ..core.errors import SteelyardError
from ..documents import DocumentError
from ..simulate.traces import TraceError

# Imported only when used: `steelyard policies` has no need of numpy.
COMMANDS: dict[str, str] = {
    "demo": "steelyard.cli.demo:demo",
    "serve": "steelyard.cli.serve:serve",
    "top": "steelyard.cli.top:top",
    "report": "steelyard.cli.report:report",
    "simulate": "steelyard.cli.simulate:simulate",
    "policies": "steelyard.cli.policies:policies",
    "check": "steelyard.cli.check:check",
    "explain": "steelyard.cli.explain:explain",
}

WRONG = 2
INTERRUPTED = 130  # 128 + SIGINT, as shells count


class CommandLine(click.Group):
    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[name].partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def main(  # type: ignore[override]  # always ends the process: there is no use for it as a function
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        # A policy named package.module:Class may be where the user works. Last, so that it hides nothing installed.
        if "" not in sys.path:
            sys.path.append("")
        extra["standalone_mode"] = False
        _show_anyway(sys.stdout)
        try:
            result = super().main(args, prog_name or "steelyard", **extra)
        except click.ClickException as problem:
            _fail(problem.format_message())
        except DocumentError as problem:
            _fail(*problem.lines)
        except (SteelyardError, TraceError) as problem:
            _fail(str(problem))
        except click.Abort:
            click.echo("interrupted", err=True)
            sys.exit(INTERRUPTED)
        sys.exit(result if isinstance(result, int) else 0)


def _show_anyway(stream: TextIO) -> None:
    """A terminal that has no sign for something gets a question mark, not a traceback. What UTF-8 cannot carry are
    only bytes of file names, where somebody wants those as they are."""
    if isinstance(stream, TextIOWrapper) and (stream.encoding.lower() != "utf-8" or stream.errors == "strict"):
        stream.reconfigure(errors="replace")


def _fail(*messages: str) -> NoReturn:
    for message in messages:
        click.echo(f"error: {' '.join(message.split())}", err=True)
    sys.exit(WRONG)
