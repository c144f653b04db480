"""`steelyard demo-replica`: a model server to try things with."""

from __future__ import annotations

import os
import socket

import click


@click.command(name="demo-replica")
@click.option(
    "--port", default=8001, show_default=True, type=click.IntRange(0, 65535), help="On 127.0.0.1; 0: a free one."
)
@click.option("--model", default="demo", show_default=True, help="The name it serves.")
@click.option("--speed", default=1.0, show_default=True, type=click.FloatRange(0.01, 100), help="0.5: half as fast.")
@click.option(
    "--slots", default=4, show_default=True, type=click.IntRange(1, 1000), help="Requests at once; others wait."
)
@click.option(
    "--load-seconds", default=0.0, show_default=True, type=click.FloatRange(0, 3600), help="Seconds until ready."
)
def demo_replica(port: int, model: str, speed: float, slots: int, load_seconds: float) -> None:
    """A small model server to try Steelyard with.

    It needs no GPU, no weights and no other packages. It speaks OpenAI's chat completions (streams too) and repeats the
    prompt, 20 ms a token.

    \b
      steelyard demo-replica --port 8001 &
      steelyard demo-replica --port 8002 --speed 0.25 --load-seconds 10 &
      steelyard serve --replica http://127.0.0.1:8001 --replica http://127.0.0.1:8002
    """
    import uvicorn

    from ..demo.replica.echo_server import EchoServer

    try:
        listening = socket.create_server(("127.0.0.1", port))
    except OSError as problem:
        raise click.ClickException(
            f"127.0.0.1:{port} cannot be used: {os.strerror(problem.errno or 0)}; choose another --port"
        ) from None
    server = EchoServer(model, speed=speed, slots=slots, loading=load_seconds)
    config = uvicorn.Config(server.app, log_level="info", access_log=False, ws="none")
    click.echo(f"{model} listens on http://127.0.0.1:{listening.getsockname()[1]}; Ctrl-C to stop", err=True)
    uvicorn.Server(config).run(sockets=[listening])
