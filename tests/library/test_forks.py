"""A program that forks, or imports the library where the gateway cannot run."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from ..harness.waiting import WAIT_TIMEOUT_SECONDS


def run(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        encoding="utf-8",
        timeout=WAIT_TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_forked_child_has_a_balancer_that_works_and_none_of_its_parents_requests() -> None:
    said = run(
        """
        import os, threading
        from steelyard import LoadBalancer

        lb = LoadBalancer(["a", "b"], concurrency=2, policy="random")
        held = [lb.route_request(wait=5) for _ in range(2)]
        stop = threading.Event()

        def busy():
            while not stop.is_set():
                with lb.route():
                    pass

        threads = [threading.Thread(target=busy) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            with lb.route() as replica:
                child = os.fork()
                if not child:
                    assert lb.load == {"a": 0, "b": 0} and lb.waiting == 0, lb.load
            if not child:
                lb.complete_request(held[0])  # its parent's: harmless
                with lb.route(), lb.route(), lb.route():
                    os._exit(0 if sum(lb.load.values()) == 3 else 3)
            assert os.waitpid(child, 0)[1] == 0
        stop.set()
        for thread in threads:
            thread.join()
        for target in held:
            lb.complete_request(target)
        print(lb.load)
        """
    )
    assert said == "{'a': 0, 'b': 0}\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_forked_children_do_not_all_choose_alike() -> None:
    said = run(
        """
        import os
        from steelyard import LoadBalancer

        lb = LoadBalancer(["a", "b"], policy="random")
        for _ in range(8):
            child = os.fork()
            if not child:
                os.write(1, ("".join(lb.route_request() for _ in range(40)) + "\\n").encode())
                os._exit(0)
            os.waitpid(child, 0)
        """
    )
    assert len(set(said.split())) == 8


BLOCKED = """
import sys

class Blocked:
    names = {
        "uvloop", "httptools", "starlette", "uvicorn", "msgspec", "yaml", "rich", "click", "dns", "matplotlib",
        "opentelemetry", "pynvml", "httpx", "httpx2", "openai", "requests", "aiohttp",
        "fcntl", "resource", "pwd", "grp", "termios", "mmap", "multiprocessing", "posix_ipc",
    }
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Blocked())
for name in [name for name in sys.modules if name.partition(".")[0] in Blocked.names]:
    del sys.modules[name]
"""


def test_the_library_works_without_the_dependencies_of_the_gateway_and_without_linux() -> None:
    said = run(
        BLOCKED
        + textwrap.dedent(
            """
            import os
            for name in ("fork", "register_at_fork", "memfd_create", "sched_getaffinity"):
                if hasattr(os, name):
                    delattr(os, name)
            import asyncio
            import steelyard
            from steelyard import LoadBalancer

            for policy in steelyard.POLICIES:
                lb = LoadBalancer(["a", "b"], policy=policy, concurrency=2)
                lb.complete_request(lb.route_request([1.0]))
                with lb.route([2.0]):
                    pass
                assert lb.call(lambda replica: replica, [3.0]) in ("a", "b")

            async def main():
                async with lb.route():
                    pass
            asyncio.run(main())
            for name in steelyard.__all__:
                getattr(steelyard, name)
            print(lb.load, len(lb.stats().replicas))
            """
        )
    )
    assert said == "{'a': 0, 'b': 0} 2\n"
