"""Envoy, LEAST_REQUEST, one worker; with outlier detection and health checks."""

from __future__ import annotations

import json
from typing import Any

from .base import Peer, Setting, Start, write

HTTP = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
ROUTER = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
RETRY = {"retry_on": "connect-failure", "num_retries": 3}  # as many as HAProxy's default


def socket(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def listener(port: int) -> dict[str, Any]:
    route = {
        "match": {"prefix": "/"},
        "route": {"cluster": "replicas", "timeout": "0s", "retry_policy": RETRY},
    }
    manager = {
        "@type": HTTP,
        "stat_prefix": "front",
        "use_remote_address": True,  # x-forwarded-for from the connection
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": {"@type": ROUTER}}],
    }
    filters = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
    return {"name": "front", "address": socket(port), "filter_chains": [{"filters": filters}]}


def cluster(ports: tuple[int, ...]) -> dict[str, Any]:
    many = {"max_connections": 20_000, "max_pending_requests": 20_000, "max_requests": 20_000}
    endpoints = [{"endpoint": {"address": socket(port)}} for port in ports]
    return {
        "name": "replicas",
        "type": "STATIC",
        "connect_timeout": "2s",
        "lb_policy": "LEAST_REQUEST",
        "circuit_breakers": {"thresholds": [many]},
        "outlier_detection": {"max_ejection_percent": 50},  # of the default, 10 %, none of eight may go
        "health_checks": [
            {
                "timeout": "1s",
                "interval": "1s",
                "unhealthy_threshold": 3,
                "healthy_threshold": 2,
                "http_health_check": {"path": "/health"},
            }
        ],
        "load_assignment": {"cluster_name": "replicas", "endpoints": [{"lb_endpoints": endpoints}]},
    }


class Envoy(Peer):
    name = "envoy"
    program = "envoy"
    rule = "LEAST_REQUEST (two choices)"
    rewrites = "x-forwarded-for, x-forwarded-proto, x-request-id, x-envoy-*, server"

    def start(self, program: str, setting: Setting) -> Start:
        config = {
            "static_resources": {"listeners": [listener(setting.listen)], "clusters": [cluster(setting.replicas)]}
        }
        path = write(setting, "envoy.json", json.dumps(config))
        options = ["--concurrency", "1", "--disable-hot-restart", "--log-level", "error"]
        return Start([program, "-c", path, *options])
