"""HAProxy, leastconn: as its manual has it for HTTP, with the two usual headers."""

from __future__ import annotations

from .base import Peer, Setting, Start, write

CONFIG = """\
global
    nbthread {workers}
    maxconn 8000

defaults
    mode http
    timeout connect 2s
    timeout client 300s
    timeout server 300s
    timeout queue 300s
    timeout http-keep-alive 75s
    option redispatch
{headers}
frontend front
    bind 127.0.0.1:{listen}
    default_backend replicas

backend replicas
    balance leastconn
    option httpchk GET /health
{servers}
"""

HEADERS = """\
    option forwardfor
    unique-id-format %[uuid()]
    unique-id-header x-request-id
"""

STREAMING = "    option http-no-delay\n"  # or it holds an event back for up to 200 ms, hoping for more to send with it


class HAProxy(Peer):
    program = "haproxy"

    def __init__(self, name: str, *, queue: int = 0, headers: bool = True) -> None:
        self.name = name
        self.queue = queue
        self.headers = headers
        self.rule = "leastconn" + (f", `maxconn {queue}` for each server" if queue else "")
        self.rewrites = "x-forwarded-for, x-request-id" if headers else "none"

    def start(self, program: str, setting: Setting) -> Start:
        limit = f" maxconn {self.queue}" if self.queue else ""
        servers = "\n".join(
            f"    server r{n} 127.0.0.1:{port} check inter 1s{limit}" for n, port in enumerate(setting.replicas)
        )
        headers = (HEADERS if self.headers else "") + (STREAMING if setting.streaming else "")
        text = CONFIG.format(workers=setting.workers, listen=setting.listen, servers=servers, headers=headers)
        return Start([program, "-f", write(setting, f"{self.name}.cfg", text), "-db"])
