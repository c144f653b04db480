"""A LitServe server with the agent: `python litserve_app.py --port 8001 [--gateway http://127.0.0.1:9080]`.

The model finds the words that two texts share; `--load-seconds` only waits, as if there were weights to load.
"""

import argparse
import time

import litserve

from steelyard.replica import ReplicaAgent


class SharedWords(litserve.LitAPI):
    def __init__(self, load_seconds: float) -> None:
        super().__init__()
        self.load_seconds = load_seconds

    def setup(self, device: str) -> None:
        time.sleep(self.load_seconds)

    def predict(self, request: dict) -> dict:
        time.sleep(float(request.get("seconds", 0)))  # as if the model were larger
        first, second = (set(str(request[key]).lower().split()) for key in ("a", "b"))
        return {"shared": sorted(first & second), "score": len(first & second) / max(1, len(first | second))}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8001)
    parser.add_argument("--gateway", help="admin address of Steelyard")
    parser.add_argument("--load-seconds", type=float, default=5.0)
    given = parser.parse_args()

    # LitServe knows when its workers are loaded and says so at /health; it is asked there.
    agent = ReplicaAgent(
        "shared-words", gateway=given.gateway, url=f"http://127.0.0.1:{given.port}", ready_path="/health"
    )
    server = litserve.LitServer(SharedWords(given.load_seconds), accelerator="cpu", middlewares=[agent.middleware])
    # In place of server.run(...): LitServe alone dies of SIGTERM without ending what it has started.
    agent.run(server.run, host="127.0.0.1", port=given.port, num_api_servers=1, generate_client_file=False)
