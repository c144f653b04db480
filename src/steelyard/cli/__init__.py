"""The command line: one file or package a command."""

from __future__ import annotations

import click

from .. import __version__
from ..system import package_form
from .command_line import CommandLine


def _print_version(context: click.Context, parameter: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        click.echo(f"steelyard {__version__} ({package_form()})")
        context.exit()


@click.group(cls=CommandLine, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version, and whether it is compiled.",
)
@click.pass_context
def main(context: click.Context) -> None:
    """The load balancer for model serving: sends each request to the replica that will finish it soonest.

    \b
    Can I see it work, here and now?
      steelyard demo
      steelyard demo-replica --port 8001           # a replica to try things with, without a GPU

    \b
    Forward requests to my replicas:
      steelyard serve --replica http://10.0.0.1:8000 --replica http://10.0.0.2:8000
      steelyard serve gateway.yaml

    \b
    Is my configuration valid, and is it wise?
      steelyard check gateway.yaml

    \b
    What does my gateway do now?
      steelyard top                                # or http://127.0.0.1:9080 in a browser

    \b
    Did we meet our SLOs?
      steelyard report --since 7d
      steelyard report --since 7d --format html --out week.html

    \b
    Why did a request go where it went, and what would another policy have done?
      steelyard explain REQUEST_ID --config gateway.yaml
      steelyard simulate --replay decisions.jsonl --policy round_robin

    \b
    What are the policies, and which one suits me?
      steelyard policies
      steelyard policies least_work

    \b
    How would they do on replicas and traffic like mine?
      steelyard simulate W3 --policy least_connections,least_work@1
      steelyard simulate --trace requests.csv --out results
      steelyard simulate W3 --show > mine.yaml     # edit, then:
      steelyard simulate mine.yaml --out results
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
