"""What a faulty replica costs: four replicas, one of which hangs, drips or answers by half from some moment on.

    python -m benchmarks.faulty_replica

Real processes: a gateway and four stub replicas, a steady load, no deadlines of clients. Counts the requests that were
not answered well, from the moment of the fault on: plain and idempotent. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import ExitStack

from tests.harness import Serving, StubReplica, config, model, scripts
from tests.harness.flow import Flow
from tests.harness.replicas.stub import Script

FAULT_SECONDS = 25.0  # with the fault
HEAD = "HTTP/1.1 200 Stub\r\ncontent-length: 20\r\n\r\n"
DRIPS: Script = [["sleep", 1.0], ["send", "x"]] * 20
FAULTS: dict[str, Script] = {
    "hangs": scripts.silent(),
    "drips": [["body"], ["send", HEAD], *DRIPS],
    "answers half": [["body"], ["send", HEAD + "half"], ["close"]],
    "answers 500": scripts.fails(500),
}
TIMEOUTS = {"first_byte": "3s", "stream_idle": "3s", "total": "5s"}


def cost(fault: str, idempotent: bool) -> tuple[int, int]:
    """Requests not answered well, and requests that the faulty replica was sent."""
    with ExitStack() as stack:
        stubs = [stack.enter_context(StubReplica(name)) for name in "abcd"]
        for stub in stubs:
            stub.answer_all(scripts.slow(0.02))
        settings = config({"*": model(*stubs, idempotent=idempotent)}, timeouts=TIMEOUTS)
        gateway = stack.enter_context(Serving(settings))
        with Flow(gateway.address, kept=12, fresh=0, pause=0.05) as flow:
            flow.go_on(600)
            stubs[3].answer_all(FAULTS[fault])
            before, mark = sum(flow.lost.values()), len(stubs[3].ids())
            time.sleep(FAULT_SECONDS)
            return sum(flow.lost.values()) - before, len(stubs[3].ids()) - mark


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    columns = f"lost in {FAULT_SECONDS:.0f} s | lost, idempotent | sent to it | sent to it, idempotent"
    print(f"| one of four | {columns} |\n|---|---|---|---|---|")
    for fault in FAULTS:
        plain, idempotent = cost(fault, False), cost(fault, True)
        print(f"| {fault} | {plain[0]} | {idempotent[0]} | {plain[1]} | {idempotent[1]} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
