"""A handler of TorchServe: a linear layer, and 20 ms."""

import time

import torch
from ts.torch_handler.base_handler import BaseHandler


class Linear(BaseHandler):
    def initialize(self, context):
        self.model = torch.nn.Linear(4, 2)
        self.initialized = True

    def preprocess(self, data):
        return torch.tensor([[float(len(str(row)))] * 4 for row in data])

    def inference(self, data, *args, **kwargs):
        time.sleep(0.02)
        with torch.no_grad():
            return self.model(data)

    def postprocess(self, data):
        return data.tolist()
