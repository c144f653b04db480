"""nginx, least_conn, connections to the replicas kept open."""

from __future__ import annotations

from .base import Peer, Setting, Start, write

CONFIG = """\
worker_processes {workers};
daemon off;
pid {folder}/{name}.pid;
error_log {folder}/{name}.error.log error;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    client_max_body_size 0;
    client_body_temp_path {folder}/{name}-body;
    proxy_temp_path {folder}/{name}-proxy;
    fastcgi_temp_path {folder}/{name}-fastcgi;
    uwsgi_temp_path {folder}/{name}-uwsgi;
    scgi_temp_path {folder}/{name}-scgi;
    keepalive_requests 1000000000;
    upstream replicas {{
        least_conn;
{servers}
        keepalive 256;
        keepalive_requests 1000000000;
    }}
    server {{
        listen 127.0.0.1:{listen} backlog=4096;
        location / {{
            proxy_pass http://replicas;
            proxy_http_version 1.1;
            proxy_read_timeout 300s;
            proxy_set_header Connection "";
            proxy_set_header Host $host;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_set_header X-Request-Id $request_id;
{streaming}
        }}
    }}
}}
"""

STREAMING = """\
            proxy_buffering off;
            proxy_request_buffering off;
"""


class Nginx(Peer):
    name = "nginx"
    program = "nginx"
    rule = "least_conn"
    rewrites = "x-forwarded-for, x-request-id"

    def start(self, program: str, setting: Setting) -> Start:
        text = CONFIG.format(
            name=self.name,
            workers=setting.workers,
            folder=setting.folder,
            listen=setting.listen,
            servers="\n".join(f"        server 127.0.0.1:{port};" for port in setting.replicas),
            streaming=STREAMING if setting.streaming else "",
        )
        setting.folder.chmod(0o755)  # the worker is another user
        return Start([program, "-c", write(setting, f"{self.name}.conf", text), "-e", "/dev/null"])
