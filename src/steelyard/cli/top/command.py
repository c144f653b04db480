"""`steelyard top`: the fleet, live in a terminal."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from time import monotonic

import click
import msgspec
from rich.console import Console
from rich.text import Text

from ... import __version__
from ...addresses import DEFAULT_ADMIN_PORT, Address, listen_address, replica_address
from ...config import load_config
from ...config.secret_files import read_tokens
from ...control.observability.views import LiveView
from ..output import stdout
from .admin_client import AdminClient, AdminUnavailableError, LiveSubscription
from .formatting import clean, truncate
from .screen import SORT_ORDERS, Snapshot, ViewOptions, render
from .terminal import Terminal

DEFAULT_ADMIN_URL = "http://127.0.0.1:9080"
TOKEN_VARIABLE = "STEELYARD_TOKEN"
REFRESH_SECONDS = 0.25
PAGE_ROWS = 10

HELP = f"""The state of the gateway, once a second: models, SLOs, replicas, device memory, events.

Reads the admin API of the gateway and changes nothing.

\b
Examples:
  steelyard top                                     the gateway of this machine, at {DEFAULT_ADMIN_URL}
  steelyard top --config gateway.yaml               where that file says, with its token
  steelyard top --admin http://10.0.0.5:9080 --token-file tokens.txt
  steelyard top --model llama                       one model

\b
Keys: q quits, j and k or the arrows scroll, s changes the order, m shows the next model alone, p pauses, ? explains.

\b
For scripts:
  steelyard top --once                              one snapshot, as text
  steelyard top --once --json | jq '.models[].sample.p99'

The token may also be in {TOKEN_VARIABLE}. Exit code 2: no answer, or an option is wrong. More: docs/top.md.
"""


@click.command(help=HELP, short_help="Live state of a gateway.")
@click.option("--admin", metavar="URL", help=f"The admin API; by default {DEFAULT_ADMIN_URL}. Also unix:/PATH.")
@click.option(
    "--config", type=click.Path(path_type=Path), metavar="CONFIG.yaml", help="Take address and token file from it."
)
@click.option("--token-file", metavar="PATH", help="File of tokens, one a line; the first is sent.")
@click.option("--model", default="", metavar="NAME", help="Only this model.")
@click.option("--once", is_flag=True, help="Print one snapshot and exit; the default without a terminal.")
@click.option("--json", "as_json", is_flag=True, help="Print one snapshot as /v1/live/latest gives it.")
def top(
    admin: str | None, config: Path | None, token_file: str | None, model: str, once: bool, as_json: bool
) -> int | None:
    asked = _admin(admin, config, token_file)
    if as_json:
        body = asked.snapshot()
        click.echo(body if not model else msgspec.json.encode(_only_model(_read(asked, body), model)))
    elif once or not (sys.stdin.isatty() and sys.stdout.isatty()):
        _print_once(asked, model)
    else:
        return _live(asked, ViewOptions(model=model))
    return None


def _admin(admin: str | None, config: Path | None, token_file: str | None) -> AdminClient:
    settings = load_config(config).admin if config is not None else None
    listen = settings.listen if settings is not None else None
    if listen == "" and admin is None:
        raise click.UsageError(f"{config} turns the admin API off (admin.listen): there is nothing to read")
    file = token_file or (settings.token_file if settings is not None else "")
    try:
        address = _address(admin or DEFAULT_ADMIN_URL) if admin or not listen else listen_address(listen)
        token = read_tokens(file)[0] if file else os.environ.get(TOKEN_VARIABLE, "")
    except ValueError as problem:
        raise click.UsageError(str(problem)) from None
    if not address.path and address.host in ("", "0.0.0.0", "::"):  # it listens on every address
        address = msgspec.structs.replace(address, host="127.0.0.1")
    return AdminClient(address, token)


def _address(text: str) -> Address:
    if "://" not in text or text.startswith("unix:"):
        return listen_address(text, DEFAULT_ADMIN_PORT)
    address = replica_address(text)
    if address.tls:
        raise ValueError(f"{text!r}: the admin API speaks http, not https")
    return address


def _print_once(admin: AdminClient, model: str) -> None:
    view = _read(admin, admin.snapshot())
    _check(view, model)
    feed = LiveSubscription(admin)
    feed.update(view)
    console = stdout()
    for line in render(_snapshot(feed, view), ViewOptions(model=model), console.width, None):
        console.print(line, soft_wrap=True)


def _read(admin: AdminClient, body: bytes) -> LiveView:
    try:
        return msgspec.json.decode(body, type=LiveView)
    except msgspec.MsgspecError:
        what = f"{admin.url} answers, but not as the admin API of Steelyard {__version__}: name that with --admin"
        raise AdminUnavailableError(what) from None


def _only_model(view: LiveView, model: str) -> LiveView:
    _check(view, model)
    return msgspec.structs.replace(
        view,
        models=tuple(one for one in view.models if one.model == model),
        replicas=tuple(one for one in view.replicas if one.model == model),
        slo=tuple(one for one in view.slo if one.model == model),
        events=tuple(one for one in view.events if one.model in ("", model)),
    )


def _check(view: LiveView, model: str) -> None:
    names = [m.model for m in view.models]
    if model and model not in names:
        raise click.UsageError(f"there is no model {model!r}; there are: {', '.join(map(clean, names)) or 'none'}")


def _snapshot(feed: LiveSubscription, view: LiveView) -> Snapshot:
    now = monotonic()
    events = [msgspec.structs.replace(event, age=now - when) for when, event in list(feed.events)]
    samples = {name: list(ring) for name, ring in list(feed.samples.items())}
    return Snapshot(view, samples, events, now - feed.updated_at, feed.problem)


def _live(admin: AdminClient, shown: ViewOptions) -> int:
    feed = LiveSubscription(admin)
    feed.start()
    console = Console(highlight=False, emoji=False, file=sys.stdout)
    known: Snapshot | None = None
    try:
        with Terminal() as terminal:
            while True:
                view = feed.view
                if view is not None and not (shown.paused and known is not None):
                    known = _snapshot(feed, view)
                terminal.draw(_drawn(console, known, shown, feed))
                key = terminal.key(REFRESH_SECONDS)
                if key == "q":
                    return 0
                shown = handle_key(key, shown, known.view if known is not None else None)
    except KeyboardInterrupt:
        return 0


def _drawn(console: Console, known: Snapshot | None, shown: ViewOptions, feed: LiveSubscription) -> str:
    width, height = console.size
    if known is None:
        what = f"{feed.problem}; retrying in 2 s" if feed.problem else f"asking {feed.admin.url} …"
        lines = [truncate(Text(clean(what)), width)]
    else:
        lines = render(known, shown, width, height)
    with console.capture() as drawn:
        for line in lines:
            console.print(line, soft_wrap=True)
    return drawn.get().removesuffix("\n")


def handle_key(key: str, shown: ViewOptions, view: LiveView | None) -> ViewOptions:
    count = len([r for r in view.replicas if shown.model in ("", r.model)]) if view is not None else 0
    names = ["", *(m.model for m in view.models)] if view is not None else [""]
    match key:
        case "up" | "down" | "page up" | "page down":
            step = (PAGE_ROWS if "page" in key else 1) * (-1 if "up" in key else 1)
            return shown._replace(scroll=max(0, min(shown.scroll + step, count - 1)))
        case "s":
            return shown._replace(sort=SORT_ORDERS[(SORT_ORDERS.index(shown.sort) + 1) % len(SORT_ORDERS)], scroll=0)
        case "m":
            after = names.index(shown.model) + 1 if shown.model in names else 0
            return shown._replace(model=names[after % len(names)], scroll=0)
        case "p":
            return shown._replace(paused=not shown.paused)
        case "?":
            return shown._replace(help=not shown.help)
    return shown
