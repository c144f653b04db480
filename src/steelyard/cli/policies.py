"""`steelyard policies`: what each policy does, when it wins and when it loses."""

from __future__ import annotations

import inspect
import sys

import click
from rich.table import Table
from rich.text import Text

from ..core.policies import POLICIES, find_policy, policy_options
from . import output


@click.command()
@click.argument("name", required=False)
def policies(name: str | None) -> None:
    """What each policy does, when it wins and when it loses.

    With NAME (one of the list, or your own package.module:Class), one policy with its options.

    \b
      steelyard policies
      steelyard policies least_work
      steelyard policies mypackage.routing:MyPolicy
    """
    if name is None:
        _list_all()
    else:
        _show_one(name)


def _list_all() -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 1, 0), header_style="dim")
    for column in ("policy", "rule", "wins", "loses"):
        table.add_column(column, overflow="fold", no_wrap=column == "policy")
    for name in POLICIES:
        kind = find_policy(name)
        table.add_row(Text(name, style="bold"), Text(kind.rule), Text(kind.wins), Text(kind.loses))
    console = output.stdout(piped=150)
    console.print(table)
    console.print("steelyard policies NAME shows one of them in full.", style="dim")


def _show_one(name: str) -> None:
    kind = find_policy(name)
    console = output.stdout(piped=100)
    console.print(Text(name, style="bold"))
    facts = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column()
    for label, fact in (("rule", kind.rule), ("wins", kind.wins), ("loses", kind.loses)):
        facts.add_row(label, Text(fact or "–"))
    console.print(facts)
    # The module of each of ours opens with idea, formula, source and limits.
    text = sys.modules[kind.__module__].__doc__ if name in POLICIES else kind.__doc__
    if text:
        console.print()
        for paragraph in inspect.cleandoc(text).split("\n\n"):
            console.print(Text(" ".join(paragraph.split())))
    console.print()
    options = policy_options(kind)
    if not options:
        console.print("No options.")
        return
    table = Table("option", "default", box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for option, default in options.items():
        required = default is inspect.Parameter.empty
        table.add_row(Text(option), Text("required" if required else repr(default)))
    console.print(table)
