"""`litserve_server.py PORT`: LitServe as its quick start has it, with a model that takes 20 ms."""

import sys
import time

import litserve


class SimpleLitAPI(litserve.LitAPI):
    def setup(self, device):
        self.model = lambda x: x**2

    def predict(self, request):
        time.sleep(0.02)
        return {"output": self.model(request["input"])}


if __name__ == "__main__":
    litserve.LitServer(SimpleLitAPI(), accelerator="cpu").run(port=int(sys.argv[1]), generate_client_file=False)
