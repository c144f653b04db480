"""The parts of the configuration. Editors and docs/configuration.md show what each key means."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec

from ...core.options import OutlierDetectionOptions, RetryOptions
from ...documents import Seconds, Share, Size


def described(meaning: str, *, renamed: dict[str, str] | None = None, example: str = "", **schema: Any) -> msgspec.Meta:
    """What a key means, values of earlier versions, an example for errors, and what else its JSON schema should say."""
    extra = {"renamed": renamed, "example": example}
    return msgspec.Meta(description=meaning, extra_json_schema=schema or None, extra=extra)


CLASS_PATH_SCHEMA = {"type": "string", "pattern": "^[^:]+:[^:]+$"}  # in a JSON schema: package.module:Class

# Larger numbers are mistakes, and may not fit into a message to a worker.
Count = Annotated[int, msgspec.Meta(ge=1, le=10**9)]
Natural = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
Positive = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
Weight = Annotated[float, msgspec.Meta(ge=1e-6, le=1e6)]  # as the core checks it
NotNegative = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]  # 0: none given
Status = Annotated[int, msgspec.Meta(ge=100, le=599)]
Percent = Annotated[float, msgspec.Meta(gt=0, lt=100)]
Priority = Annotated[int, msgspec.Meta(ge=-999, le=999)]


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Unknown keys are errors: a misspelt limit is no limit."""


class TlsConfig(Section, frozen=True):
    """TLS for clients. The files are read again when they change."""

    certificate: Annotated[str, described("file with the certificate and its chain, PEM")]
    key: Annotated[str, described("file with its private key, PEM, without a password")]
    client_ca: Annotated[str, described("file; clients must show a certificate signed by one of these")] = ""


class ReplicaTlsConfig(Section, frozen=True):
    """TLS to replicas with https URLs."""

    ca: Annotated[str, described("file with the authorities to trust; empty: those of the system")] = ""
    certificate: Annotated[str, described("file with a certificate to show to the replica")] = ""
    key: Annotated[str, described("file with its private key")] = ""
    server_name: Annotated[str, described("name expected in the replica's certificate, if that is not its host")] = ""
    verify: Annotated[bool, described("whether the replica's certificate is checked")] = True


class LimitsConfig(Section, frozen=True):
    """What a client may ask of the gateway."""

    __renamed__: ClassVar[dict[str, str]] = {
        "headers": "header_count",
        "body": "body_bytes",
        "replay": "replay_bytes",
        "buffer": "connection_buffer_bytes",
        "body_rate": "min_body_rate",
        "buffered": "total_buffer_bytes",
        "client_share": "max_client_share",
        "idle_connections": "idle_connections_per_replica",
    }

    header_bytes: Annotated[Size, described("most bytes of a request's first line and headers")] = Size(64 << 10)
    header_count: Annotated[Count, described("most headers of one request")] = 100
    body_bytes: Annotated[Size, described("most bytes of one request's body")] = Size(256 << 20)
    replay_bytes: Annotated[Size, described("bytes of a body kept to read and resend it; 0: none")] = Size(8 << 20)
    connection_buffer_bytes: Annotated[Size, described("unwritten bytes at which a source is paused")] = Size(256 << 10)
    min_body_rate: Annotated[Size, described("fewest bytes a second of a body; 0: any rate")] = Size(256)
    total_buffer_bytes: Annotated[Size, described("most bytes of all bodies held in one worker")] = Size(256 << 20)
    max_client_share: Annotated[
        Share, described("share of `total_buffer_bytes` that one client may keep when they run out")
    ] = Share(0.25)
    connections: Annotated[Count, described("most connections of clients, a worker; TLS handshakes count")] = 8192
    idle_connections_per_replica: Annotated[Count, described("most unused connections to one replica, a worker")] = 256


class TimeoutsConfig(Section, frozen=True):
    """How long the gateway waits."""

    __renamed__: ClassVar[dict[str, str]] = {"stream": "stream_idle"}

    header: Annotated[Seconds, described("from a first byte to the last header; also for TLS")] = Seconds(10)
    body: Annotated[Seconds, described("between two pieces of a request's body")] = Seconds(30)
    body_total: Annotated[Seconds, described("for all of a request's body, while the gateway reads")] = Seconds(600)
    idle: Annotated[Seconds, described("a client's connection without a request")] = Seconds(75)
    write: Annotated[Seconds, described("for a client that reads nothing of its answer")] = Seconds(60)
    connect: Annotated[Seconds, described("for a connection to a replica")] = Seconds(2)
    first_byte: Annotated[Seconds, described("from sending to the first byte of the answer")] = Seconds(300)
    stream_idle: Annotated[Seconds, described("between two pieces of an answer")] = Seconds(300)
    total: Annotated[Seconds, described("for one request, waiting and trying again included")] = Seconds(3600)
    # Servers close theirs after 5 s and up. The gateway closes first, or a request meets a closing connection.
    replica_idle: Annotated[Seconds, described("an unused connection to a replica; less than its own")] = Seconds(4)
    drain: Annotated[Seconds, described("for requests in flight when told to stop; 0: they are cut off")] = Seconds(30)


class TenantConfig(Section, frozen=True):
    """A client of the gateway. `*` stands for all without a name here."""

    __renamed__: ClassVar[dict[str, str]] = {"priority": "max_priority"}

    networks: Annotated[tuple[str, ...], described("addresses of this tenant", examples=[["10.2.0.0/16"]])] = ()
    max_priority: Annotated[Priority, described("highest `steelyard-priority` of its requests; caps theirs")] = 0


class AccessLogConfig(Section, frozen=True):
    """A line for each request."""

    path: Annotated[str, described("file to append to; `-` is standard output")]
    format: Annotated[Literal["json", "text"], described("`json` or `text`")] = "json"


class OutlierDetectionConfig(Section, frozen=True):
    """When a replica is ejected for how it treats real requests."""

    __renamed__: ClassVar[dict[str, str]] = OutlierDetectionOptions.__renamed__

    enabled: Annotated[bool, described("whether replicas are ejected at all")] = True
    consecutive_failures: Annotated[Count, described("failures in a row that eject a replica")] = 5
    stdev_factor: Annotated[Positive, described("ejected too: a success rate this many σ under the mean, …")] = 1.9
    min_rate_gap: Annotated[Share, described("… and at least this much under it")] = Share(0.1)
    min_replicas: Annotated[Count, described("replicas it takes to compare them")] = 5
    min_requests: Annotated[Count, described("requests it takes of each")] = 20
    slow_factor: Annotated[Positive, described("ejected too: this many times (more than 1) its usual time, …")] = 3.0
    slow_duration: Annotated[Seconds, described("… for this long")] = Seconds(10)
    base_ejection_time: Annotated[Seconds, described("ejected for this long, times how often it was")] = Seconds(30)
    max_ejection_time: Annotated[Seconds, described("longest that it is out")] = Seconds(300)
    max_ejected_share: Annotated[Share, described("most replicas out by comparison at once; at least one")] = Share(0.1)
    panic_threshold: Annotated[Share, described("with fewer healthy replicas, ejected ones serve too")] = Share(0.5)


class RetryConfig(Section, frozen=True):
    """A failed request, sent again to another replica."""

    __renamed__: ClassVar[dict[str, str]] = RetryOptions.__renamed__

    max_attempts: Annotated[Count, described("attempts in all, the first included; 1: no retries")] = 3
    budget: Annotated[Share, described("retries per request, so that a failing fleet is not flooded")] = Share(0.2)
    initial_tokens: Annotated[NotNegative, described("retries in hand at the start")] = 3.0
    max_tokens: Annotated[NotNegative, described("most retries that are saved up")] = 50.0


class HedgeConfig(Section, frozen=True):
    """A second attempt elsewhere while the first still runs; the loser is cancelled."""

    enabled: Annotated[bool, described("whether late requests are sent twice")] = False
    quantile: Annotated[Share, described("late: slower, for its prediction, than this share of requests")] = Share(0.95)
    budget: Annotated[Share, described("share of the work done that may be spent on second attempts")] = Share(0.02)
