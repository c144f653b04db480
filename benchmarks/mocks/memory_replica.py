"""A server of `benchmarks.memory`: `python -m benchmarks.mocks.memory_replica PORT FOLDER MODEL WEIGHTS PER_UNIT`.

FOLDER is its device: a file system of a fixed size that several servers share. Weights and what requests need are files
there, without names, mapped and written to. When the device is full, the kernel kills the next writer (SIGBUS).
It speaks the Open Inference Protocol; a request holds PER_UNIT bytes for each element of its tensor, for as long as it
says. Its answers tell what it was measured to need, if nothing else ran here meanwhile: otherwise one cannot know.
"""

from __future__ import annotations

import asyncio
import json
import mmap
import os
import sys
from pathlib import Path
from typing import Any

import uvloop

from ..load.http_protocol import ServerConnection

LOAD_REPORT_HEADER = "endpoint-load-metrics: JSON "
NOT_FOUND = "404 Not Found"


def allocate(folder: str, size: int) -> mmap.mmap | None:
    """Memory of the device, every page of it in use; an empty file cannot be mapped."""
    if not size:
        return None
    file = os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600)
    try:
        os.ftruncate(file, size)
        memory = mmap.mmap(file, size)
    finally:
        os.close(file)
    memoryview(memory)[:: mmap.PAGESIZE] = b"\1" * -(-size // mmap.PAGESIZE)
    return memory


def in_use(folder: str) -> int:
    """Bytes of the device, all processes."""
    metrics = os.statvfs(folder)
    return (metrics.f_blocks - metrics.f_bfree) * metrics.f_frsize


def held() -> int:
    """Bytes of the device that this process holds; nothing else here is shared memory."""
    for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("RssShmem:"):
            return int(line.split()[1]) << 10
    return 0


class Replica:
    def __init__(self, folder: str, model: str, weights: int, per_unit: int) -> None:
        self.folder = folder
        self.model = model
        self.per_unit = per_unit
        self.weights = allocate(folder, weights)
        self.base = held()
        self.running = 0
        self.begun = 0  # requests, ever
        self.tasks: set[asyncio.Task[None]] = set()

    def serve(self, connection: Connection, body: bytes) -> None:
        task = asyncio.get_running_loop().create_task(self.work(connection, json.loads(body)))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def work(self, connection: Connection, asked: dict[str, Any]) -> None:
        """To its end, even if the client has left: a batch that has begun is not stopped."""
        size = self.per_unit * int(asked["inputs"][0]["shape"][0])
        alone = not self.running
        self.running += 1
        self.begun += 1
        number = self.begun
        memory = allocate(self.folder, size)
        peak, used = held(), in_use(self.folder)
        await asyncio.sleep(float(asked["parameters"]["seconds"]))
        if memory is not None:
            memory.close()
        self.running -= 1
        metrics = {"memory_held_bytes": held(), "memory_base_bytes": self.base}
        if alone and number == self.begun:
            metrics["memory_request_bytes"] = peak - self.base
        answer = {"model_name": self.model, "outputs": [], "parameters": {"bytes": size, "in_use": used}}
        connection.reply_with_report(json.dumps(answer).encode(), {"named_metrics": metrics})

    def metrics(self) -> bytes:
        metrics = {"held": held(), "base": self.base}
        return "".join(f"steelyard_memory_{name}_bytes {value}\n" for name, value in metrics.items()).encode()


class Connection(ServerConnection):
    def __init__(self, replica: Replica) -> None:
        super().__init__()
        self.replica = replica

    def on_message_complete(self) -> None:
        if self.parser.get_method() != b"GET":
            super().on_message_complete()
        else:
            self.reply(self.replica.metrics() if self.url == b"/metrics" else b"{}")

    def message(self, body: bytes) -> None:
        if self.url.decode() == f"/v2/models/{self.replica.model}/infer":
            self.replica.serve(self, body)
        else:
            self.reply(b'{"error": "no such model"}', NOT_FOUND)

    def reply_with_report(self, body: bytes, report: dict[str, Any]) -> None:
        """An answer with a load report."""
        self.reply(body, f"200 OK\r\n{LOAD_REPORT_HEADER}{json.dumps(report)}")


async def serve(port: int, replica: Replica) -> None:
    """Until stdin closes."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    await loop.create_server(lambda: Connection(replica), "127.0.0.1", port, backlog=4096)
    loop.add_reader(sys.stdin.fileno(), over.set)
    await over.wait()


if __name__ == "__main__":
    port, folder, model, weights, per_unit = sys.argv[1:]
    uvloop.run(serve(int(port), Replica(folder, model, int(weights), int(per_unit))))
