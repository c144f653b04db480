"""How commands are found and fail: a line on stderr for each mistake and exit code 2, never a traceback."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from typing import Any, Literal, NoReturn, TextIO

import click

from ..core.errors import SteelyardError
from ..documents import DocumentError, did_you_mean_or_list
from ..simulate.workload.traces import TraceError

# Imported only when used: `steelyard policies` has no need of numpy.
COMMANDS: dict[str, str] = {
    "demo": "steelyard.cli.demo:demo",
    "demo-replica": "steelyard.cli.demo_replica:demo_replica",
    "serve": "steelyard.cli.serve:serve",
    "top": "steelyard.cli.top.command:top",
    "report": "steelyard.cli.report.command:report",
    "simulate": "steelyard.cli.simulate.command:simulate",
    "policies": "steelyard.cli.policies:policies",
    "check": "steelyard.cli.check:check",
    "explain": "steelyard.cli.explain:explain",
}

RENAMED_OPTIONS = {"--loading": "--load-seconds", "--max-wait": "--queue-timeout", "--no-guide": "--no-tour"}

NEEDS_LINUX = {"demo", "demo-replica", "serve"}
NEEDS_POSIX = {"report", "top"}
UNSUPPORTED_MESSAGE = (
    "`steelyard {}` does not work on {}: run it on Linux, in a Linux container or in WSL. "
    "The library, the simulator and steelyard.replica work here"
)

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells count


class CommandLine(click.Group):
    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        if (name in NEEDS_LINUX and sys.platform != "linux") or (name in NEEDS_POSIX and sys.platform == "win32"):
            return _unsupported_command(name)
        module, _, attribute = COMMANDS[name].partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """A mistyped command gets a suggestion, as mistyped options do."""
        try:
            return super().resolve_command(context, args)
        except click.UsageError:
            if not args or args[0] in COMMANDS or args[0].startswith("-"):
                raise
            meant = did_you_mean_or_list(args[0], COMMANDS, otherwise="there are")
            raise click.UsageError(f"no command {args[0]!r}{meant}; see steelyard --help") from None

    def main(  # type: ignore[override]  # always ends the process
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        # For policies in the current directory; last, to hide nothing installed.
        if "" not in sys.path:
            sys.path.append("")
        extra["standalone_mode"] = False
        _replace_unencodable(sys.stdout)
        try:
            result = super().main(args, prog_name or "steelyard", **extra)
        except click.NoSuchOption as problem:
            renamed = RENAMED_OPTIONS.get(problem.option_name)
            _fail(f"{problem.message.rstrip('.')}: renamed to {renamed}" if renamed else problem.format_message())
        except click.ClickException as problem:
            _fail(problem.format_message())
        except DocumentError as problem:
            _fail(*problem.lines)
        except (SteelyardError, TraceError) as problem:
            _fail(str(problem))
        except click.Abort:
            click.echo("interrupted", err=True)
            sys.exit(EXIT_INTERRUPTED)
        sys.exit(result if isinstance(result, int) else 0)


def _unsupported_command(name: str) -> click.Command:
    """Replaces a command whose modules cannot be imported here."""

    def refuse(**_: Any) -> NoReturn:
        raise click.ClickException(UNSUPPORTED_MESSAGE.format(name, sys.platform))

    arguments = click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)
    settings = {"ignore_unknown_options": True, "help_option_names": []}
    return click.Command(
        name, context_settings=settings, callback=refuse, params=[arguments], help="Not on this system."
    )


def _replace_unencodable(stream: TextIO) -> None:
    """A terminal that lacks a character gets a question mark, not a traceback."""
    if isinstance(stream, TextIOWrapper) and (stream.encoding.lower() != "utf-8" or stream.errors == "strict"):
        stream.reconfigure(errors="replace")


def _fail(*messages: str) -> NoReturn:
    for message in messages:
        click.echo(f"error: {' '.join(message.split())}", err=True)
    sys.exit(EXIT_USAGE)


def parse_concurrency(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> int | Literal["auto", "unlimited"] | None:
    """The callback of `--concurrency`."""
    match value:
        case None | "auto" | "unlimited":
            return value
        case number if number.isdecimal() and int(number) >= 1:
            return int(number)
    raise click.BadParameter(f"{value!r}: a whole number from 1, auto or unlimited")
