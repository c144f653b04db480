"""`litserve_chat.py PORT SERVERS`: a LitServe server with a spec, which is sent with the middlewares to the workers."""

import sys

import litserve

from steelyard.replica import ReplicaAgent


class Chat(litserve.LitAPI):
    def setup(self, device):
        pass

    def predict(self, prompt):
        yield from ("all", " is", " well")


if __name__ == "__main__":
    agent = ReplicaAgent("chat", ready_path="/health", deregistration_delay=0.1)
    server = litserve.LitServer(
        Chat(spec=litserve.OpenAISpec()), accelerator="cpu", middlewares=[agent.middleware], track_requests=True
    )
    agent.run(
        server.run,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        num_api_servers=int(sys.argv[2]),
        generate_client_file=False,
    )
