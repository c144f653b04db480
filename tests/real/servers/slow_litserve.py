"""`slow_litserve.py PORT SECONDS`: a LitServe server with two workers whose `setup` takes so long, one half as long.

LitServe listens as soon as one of them is done, and is ready (`/health`) when both are.
"""

import os
import sys
import time

import litserve
from witness import Log, Witness

WORKERS = 2


class Slow(litserve.LitAPI):
    def setup(self, device):
        seconds = float(sys.argv[2])
        time.sleep(seconds if is_first() else seconds / 2)
        Log().say("loaded")

    def predict(self, request):
        time.sleep(0.02)
        return {"pid": os.getpid(), "text": request.get("text", "")}


def is_first():
    """Among the workers of this start."""
    try:
        os.close(os.open(os.environ["WITNESS"] + ".first", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


if __name__ == "__main__":
    Log().say("started", pid=os.getpid())
    server = litserve.LitServer(
        Slow(), accelerator="cpu", workers_per_device=WORKERS, middlewares=[(Witness, {"workers": WORKERS})]
    )
    server.run(
        host="127.0.0.1", port=int(sys.argv[1]), num_api_servers=1, generate_client_file=False, log_level="warning"
    )
