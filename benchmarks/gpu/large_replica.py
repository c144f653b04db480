"""One replica that holds much of a GPU: `python -m benchmarks.gpu.large_replica PORT GIB [--pretend]`.

Without the agent, like a third-party server: Steelyard knows of its memory what the configuration declares, and what
NVML measures of the whole card.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any

MATRIX_SIZE = 8192  # of the matrices that a request multiplies
MULTIPLICATIONS = 8


class LargeReplica:
    def __init__(self, gib: int, pretend: bool) -> None:
        self.ready = False
        self._pretend = pretend
        self._gib = gib
        self._weights: list[Any] = []
        self._one_at_a_time = asyncio.Lock()

    def load(self) -> None:
        if self._pretend:
            time.sleep(2.0)
        else:
            import torch  # type: ignore[import-not-found,unused-ignore]

            for _ in range(self._gib):
                self._weights.append(torch.empty(1 << 30, dtype=torch.uint8, device="cuda").fill_(1))
            self.run()
        self.ready = True

    def run(self) -> None:
        if self._pretend:
            time.sleep(0.1)
            return
        import torch  # type: ignore[import-not-found,unused-ignore]

        matrix = torch.ones((MATRIX_SIZE, MATRIX_SIZE), dtype=torch.float16, device="cuda")
        for _ in range(MULTIPLICATIONS):
            matrix = matrix @ matrix * 1e-4
        torch.cuda.synchronize()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = next((int(line[15:]) for line in head.split(b"\r\n") if line[:15] == b"content-length:"), 0)
                await reader.readexactly(length)
                status, body = await self.answer(head)
                writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def answer(self, head: bytes) -> tuple[int, bytes]:
        if b" /health " in head:
            return (200 if self.ready else 503), b""
        async with self._one_at_a_time:
            try:
                await asyncio.to_thread(self.run)
            except RuntimeError as problem:  # torch's OutOfMemoryError is one
                return 500, str(problem)[:500].encode()
        return 200, os.environ.get("CUDA_VISIBLE_DEVICES", "none").encode()


async def main() -> None:
    port, gib = int(sys.argv[1]), int(sys.argv[2])
    scaled = LargeReplica(gib, "--pretend" in sys.argv)
    server = await asyncio.start_server(scaled.serve, "127.0.0.1", port)
    await asyncio.to_thread(scaled.load)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
