"""`steelyard serve`: the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import uvloop

from .. import __version__
from ..advice import advise
from ..config import (
    ANY_MODEL,
    AutoscaleConfig,
    Config,
    ModelConfig,
    RuntimeConfig,
    from_replicas,
    load_config,
    with_overrides,
)
from ..control.process_resources import open_files_warning, raise_open_files
from ..control.supervisor import log_setup
from ..control.supervisor.reload import summary
from ..control.supervisor.run import run
from ..control.supervisor.supervisor import Supervisor
from ..control.systemd import systemd_sockets
from ..documents import Seconds
from ..protocols import DIALECTS
from ..system import package_form
from ..units import parse_duration
from .command_line import parse_concurrency

PURE_PYTHON_HINT = (
    "Steelyard runs as pure Python, which costs more CPU per request than the compiled form: "
    "install a compiled wheel, or compile it (STEELYARD_COMPILE=1 pip install .), which needs a C compiler"
)
HELP = """Forward requests to replicas: each to the one that will finish it soonest.

\b
Without a file:
  steelyard serve --replica http://10.0.0.1:8000 --replica http://10.0.0.2:8000
  steelyard serve --replica http://10.0.0.1:8000 --policy least_connections --listen 0.0.0.0:8080 --workers 4

\b
Replicas that it starts itself, each on a port of its own that takes the place of {port}:
  steelyard serve --start "steelyard demo-replica --port {port}" --scale 3
  steelyard serve --start "steelyard demo-replica --port {port}" --scale 1-4  # as many as are needed
  steelyard serve --start "vllm serve MODEL --port {port}" --scale 0-2 --concurrency 32  # zero when idle

\b
With a file, which can say more:
  steelyard check gateway.yaml
  steelyard serve gateway.yaml
  steelyard serve gateway.yaml --listen 127.0.0.1:9000      # the command line wins over the file

\b
A replica gets requests when its readiness probe says that the model is loaded, and none before:
  --dialect vllm                  probe as this server expects; without it, the usual paths are tried
  --health-path /ready            probe this path

\b
The admin API shows the fleet, in a browser too, and adds, drains and removes replicas, at http://127.0.0.1:9080:
  --admin 127.0.0.1:9081          at another address
  --admin :9080 --admin-token-file tokens.txt     for other machines too, if they show a token of that file
  --admin off                     not at all

\b
While it runs:
  save the file, or kill -HUP     the new configuration is put in force; a bad one is refused and the last stays
  Ctrl-C, or kill                 no new connections, requests in flight are finished, then it ends; twice: at once

\b
A new version in its place, with no request lost (the old one drains and ends):
  steelyard serve gateway.yaml --take-over
  kill -USR2                      the same, from the running one: it starts what is installed by now

Then send requests to http://127.0.0.1:8080 as you would to a replica. Each answer names its replica in the header
steelyard-replica. Policies: `steelyard policies`. All that a file may say: docs/configuration.md.
"""


def _seconds(context: click.Context, parameter: click.Parameter, value: str | None) -> Seconds | None:
    try:
        return None if value is None else Seconds(parse_duration(value))
    except ValueError as problem:
        raise click.BadParameter(str(problem)) from None


@click.command(help=HELP, short_help="Forward requests to replicas.")
@click.argument("config", required=False, type=click.Path(path_type=Path), metavar="[CONFIG.yaml]")
@click.option("--replica", "replicas", multiple=True, metavar="URL", help="A replica; may be given several times.")
@click.option(
    "--start", metavar="COMMAND", help="How to start a replica; {port} and {id} are filled in, {model} with --model."
)
@click.option(
    "--scale",
    metavar="N|MIN-MAX",
    help="With --start: how many, by default 1; 1-4: as needed; 0-4: scales to zero when idle.",
)
@click.option("--model", metavar="NAME", help="Without a file: serve only this model; by default any name.")
@click.option("--policy", metavar="NAME", help="How to choose; by default least_work, or prefix_work for text.")
@click.option(
    "--concurrency",
    callback=parse_concurrency,
    metavar="N|auto|unlimited",
    help="Requests that a replica takes at once; the rest wait here. With --scale, rather a number than unlimited.",
)
@click.option(
    "--queue-timeout",
    callback=_seconds,
    metavar="TIME",
    help="Longest that a request without a deadline waits, such as 2m; by default 30s, or as long as a start may take.",
)
@click.option(
    "--listen",
    multiple=True,
    metavar="HOST:PORT",
    help="Also [V6]:PORT, :PORT (all addresses), unix:/PATH; several times. By default 127.0.0.1:8080.",
)
@click.option("--workers", type=click.IntRange(min=1), metavar="N", help="Processes that forward; by default 1.")
@click.option(
    "--health-path",
    metavar="PATH",
    help="Readiness probe of the replicas, for example /ready; by default what the dialect says.",
)
@click.option(
    "--dialect",
    metavar="NAME",
    help=f"What the replicas speak: {', '.join(DIALECTS)}; by default found from the path of each request.",
)
@click.option(
    "--idempotent",
    is_flag=True,
    default=None,
    help="A POST may be sent to another replica although the first may have begun it: right where it changes nothing.",
)
@click.option(
    "--admin",
    metavar="HOST:PORT|off",
    help="Where the admin API listens; also unix:/PATH. By default 127.0.0.1:9080, if that is free.",
)
@click.option(
    "--admin-token-file",
    metavar="PATH",
    help="Bearer tokens of the admin API, one a line; needed where other machines can reach it.",
)
@click.option("--access-log", metavar="PATH", help="A line for each request there; - is standard output.")
@click.option(
    "--take-over",
    is_flag=True,
    help="Replace a running gateway of the same name or address without losing a request.",
)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", help="Of what goes to stderr.")
@click.option(
    "--log-level",
    type=click.Choice(log_setup.LEVELS),
    default="info",
    help="The least that goes to stderr; by default info.",
)
def serve(
    config: Path | None,
    replicas: tuple[str, ...],
    start: str | None,
    scale: str | None,
    model: str | None,
    listen: tuple[str, ...],
    take_over: bool,
    log_format: str,
    log_level: str,
    **flags: Any,
) -> int:
    """`flags`: what both a file and a configuration without one can be changed by."""
    flags["listen"] = None if not listen else listen[0] if len(listen) == 1 else listen

    def reread() -> Config:
        if config is None:
            return from_replicas(replicas, start=start, scale=scale, model=model or ANY_MODEL, **flags)
        return with_overrides(load_config(config), **flags)

    _check_source(config, {"--replica": replicas or None, "--start": start, "--scale": scale, "--model": model})
    return run_gateway(reread, [config] if config else [], log_format, log_level, take_over)


def _check_source(config: Path | None, instead: dict[str, object]) -> None:
    """`instead`: options that a configuration file excludes."""
    if config is None and instead["--replica"] is instead["--start"] is instead["--scale"] is None:
        raise click.UsageError(
            "serve what? Name replicas: steelyard serve --replica http://HOST:PORT; or how to start them: "
            "--start COMMAND; or a configuration: steelyard serve CONFIG.yaml; see --help"
        )
    given = next((flag for flag, value in instead.items() if value is not None), None)
    if config is not None and given is not None:
        raise click.UsageError(f"{given} is for serving without a file; write it under models in {config} instead")


def run_gateway(
    reread: Callable[[], Config], files: list[Path], log_format: str, log_level: str, take_over: bool
) -> int:
    """Until a signal stops it; returns the exit code."""
    config = reread()
    logger = log_setup.configure_logging(log_format, level=log_level)
    if warning := open_files_warning(config, raise_open_files()):
        logger.warning(warning)
    logger.info("steelyard %s: %s", __version__, summary(config))
    if package_form() != "compiled":
        logger.info(PURE_PYTHON_HINT)
    for line in describe_models(config):
        logger.info(line)

    async def work() -> int:
        supervisor = Supervisor(config, reread=reread, files=files, take_over=take_over, sockets=systemd_sockets())
        return await run(supervisor, *_next_steps(config, files))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work())


def _next_steps(config: Config, files: list[Path]) -> list[str]:
    how = "".join(f"save {file} to change it, " for file in files)
    steps = [f"next: {how}Ctrl-C to stop"]
    if warnings := len(advise(config)):
        count = f"{warnings} warning{'s' * (warnings > 1)}"
        steps += [f"next: steelyard check {file} has {count} for you" for file in files]
    return steps


def describe_models(config: Config) -> list[str]:
    """At most a screenful: a fleet may be large."""
    lines = []
    for name, model in config.models.items():
        how = f"policy {model.policy}, concurrency {model.concurrency}"
        lines.append(f"model {name}: {how}: {_describe_replicas(model)}")
    return lines if len(lines) <= 12 else [*lines[:11], f"and {len(lines) - 11} more models"]


def _describe_replicas(model: ModelConfig) -> str:
    places = ", ".join(replica.name for replica in model.replicas[:8])
    parts = [places] if places else []
    if (more := len(model.replicas) - 8) > 0:
        parts.append(f"{more} more")
    parts += [f"those found in {source.describe()}" for source in model.discovery]
    if model.runtime is not None:
        parts.append(f"{_replica_count(model.runtime, model.autoscale)} started as {model.runtime.describe()}")
    return " and ".join(parts) or "no replicas yet"


def _replica_count(runtime: RuntimeConfig, scale: AutoscaleConfig | None) -> str:
    if scale is None or scale.mode != "act":
        return str(runtime.replicas)
    return f"{scale.min} or more" if scale.max is None else f"{scale.min} to {scale.max}"
