"""`slow_mlserver.py start FOLDER`: MLServer with a witness in front, and a model whose `load` takes LOAD_SECONDS.

Half of that time it blocks the whole server, as most runtimes do that read their weights; half of it it does not.
"""

import asyncio
import os
import time

from mlserver import MLModel
from mlserver.types import InferenceRequest, InferenceResponse, ResponseOutput
from witness import Log, Witness


class Slow(MLModel):
    async def load(self) -> bool:
        seconds = float(os.environ["LOAD_SECONDS"])
        await asyncio.sleep(seconds / 2)
        time.sleep(seconds / 2)
        Log().say("loaded")
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        await asyncio.sleep(0.02)
        output = ResponseOutput(name="y", shape=[1], datatype="INT64", data=[os.getpid()])
        return InferenceResponse(id=payload.id, model_name=self.name, outputs=[output])


def main() -> None:
    import mlserver.rest.server as rest
    from mlserver.cli import main

    make = rest.create_app

    def with_witness(*args, **kwargs):
        app = make(*args, **kwargs)
        app.add_middleware(Witness)
        return app

    rest.create_app = with_witness
    Log().say("started", pid=os.getpid())
    main()


if __name__ == "__main__":
    main()
