"""The wall clock jumps, forwards and back: nothing changes, because nothing but logs looks at it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.harness import Ledger, Serving, StubReplica, config, model, new_id, nothing_left, request, scripts
from tests.harness.traffic import traffic

FAKETIME = next(
    (
        path
        for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib", "/usr/local/lib")
        for path in Path(folder, "faketime").glob("libfaketime.so.1")
    ),
    None,
)


@pytest.mark.skipif(FAKETIME is None, reason="libfaketime is not installed (Debian: faketime)")
def test_jumps(tmp_path: Path) -> None:
    stamp = tmp_path / "time"
    stamp.write_text("+0")
    environment = {
        "LD_PRELOAD": str(FAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(stamp),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }
    log = tmp_path / "access"
    with StubReplica("a") as stub:
        ledger = Ledger(stub)
        models = {"*": model(stub, idempotent=False), "one": model(stub, concurrency=1, queue_timeout="20m")}
        settings = config(models, timeouts={"idle": "10m"}, access_log={"path": str(log)})
        with Serving(settings, environment=environment) as gateway, nothing_left(gateway, spare=1):
            gate, running, waiting = new_id("gate"), new_id(), new_id()
            headers = {"steelyard-model": "one", "steelyard-timeout-ms": "1200000"}
            with gateway.connect() as first, gateway.connect() as second, gateway.connect() as idle:
                assert idle.ask("GET").status == 200
                first.send(request("POST", id=running, headers=headers, script=scripts.held(gate)))
                stub.wait("waiting", id=running)
                second.send(request("POST", id=waiting, headers=headers))
                with traffic(gateway, ledger):
                    for jump in ("+1h", "-1h", "+400d", "+0"):
                        stamp.write_text(jump)
                        seen = len(stub.of("done"))
                        stub.wait("done", seen + 20)
                        time.sleep(0.2)  # time for a wrong timer to go off
                assert first.quiet(0)
                assert second.quiet(0)
                stub.open(gate)
                assert first.response().status == 200
                assert second.response().status == 200
                assert idle.ask("GET").status == 200
        ledger.check()
        assert set(ledger.count()) == {"ok"}
