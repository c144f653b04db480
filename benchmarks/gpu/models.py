"""Three models of torch whose requests need very different amounts of memory, each with weights of some GiB.

Plain tensors and functions: what is allocated, and when it is let go, can be read off the code.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple, Protocol

Shape = tuple[int, ...]  # of the input, the batch first


class Ran(NamedTuple):
    value: float  # of the output, so that it must be there
    bytes: int  # that it had at most, over what was there before; true only of one that ran alone in its process


class Model(Protocol):
    def run(self, shape: Shape) -> Ran:
        """The inference of a random input of that shape."""


class TorchModel:
    """What they share: the card, and how the peak of a request is measured."""

    def __init__(self) -> None:
        torch: Any = import_module("torch")
        self.torch = torch
        self.functional: Any = import_module("torch.nn.functional")
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True

    def weight(self, *shape: int, dtype: str = "bfloat16") -> Any:
        torch = self.torch
        fan_in = shape[-1] if len(shape) < 4 else shape[1] * shape[2] * shape[3]
        return torch.empty(shape, dtype=getattr(torch, dtype), device=self.device).normal_(0.0, fan_in**-0.5)

    def run(self, shape: Shape) -> Ran:
        cuda = self.torch.cuda
        if self.device.type != "cuda":
            return Ran(self._value(shape), 0)
        cuda.reset_peak_memory_stats()
        before = cuda.memory_allocated()
        return Ran(self._value(shape), cuda.max_memory_allocated() - before)

    def _value(self, shape: Shape) -> float:
        with self.torch.inference_mode():
            return float(self.infer(shape))  # waits until the card is done

    def infer(self, shape: Shape) -> Any:
        raise NotImplementedError


class Encoder(TorchModel):
    """A transformer with plain attention over [batch, length] tokens: memory grows with the square of the length."""

    def __init__(self, width: int = 4096, layers: int = 6, heads: int = 32, words: int = 32_000) -> None:
        super().__init__()
        self.width, self.heads = width, heads
        self.words = self.weight(words, width)
        self.layers = [
            (
                self.weight(3 * width, width),
                self.weight(width, width),
                self.weight(4 * width, width),
                self.weight(width, 4 * width),
            )
            for _ in range(layers)
        ]

    def infer(self, shape: Shape) -> Any:
        tokens = self.torch.randint(len(self.words), shape, device=self.device)
        x = self.words[tokens]
        for query_key_value, out, up, down in self.layers:
            x = x + self._attend(self._norm(x), query_key_value) @ out.T
            x = x + self.functional.gelu(self._norm(x) @ up.T) @ down.T
        return x.mean()

    def _norm(self, x: Any) -> Any:
        return self.functional.layer_norm(x, (self.width,))

    def _attend(self, x: Any, weights: Any) -> Any:
        batch, length, width = x.shape
        mixed = (x @ weights.T).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = mixed.permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-1, -2)  # [batch, heads, length, length]: what the memory is needed for
        scores *= (width // self.heads) ** -0.5
        seen = self.torch.softmax(scores, dim=-1) @ value
        return seen.transpose(1, 2).reshape(batch, length, width)


class Segmenter(TorchModel):
    """Convolutions over [batch, 3, height, width] images, the first at full resolution: memory grows with the area."""

    def __init__(self, narrow: int = 128, wide: int = 2048, deep: int = 14) -> None:
        super().__init__()
        self.first = self._kernel(narrow, 3)
        self.full = [(self._kernel(narrow, narrow), self._kernel(narrow, narrow)) for _ in range(2)]
        self.down = self._kernel(wide, narrow)
        self.deep = [self._kernel(wide, wide) for _ in range(deep)]

    def _kernel(self, out: int, into: int) -> Any:
        return self.weight(out, into, 3, 3, dtype="float32").to(memory_format=self.torch.channels_last)

    def infer(self, shape: Shape) -> Any:
        torch, conv = self.torch, self.functional.conv2d
        x = torch.rand(shape, device=self.device).to(memory_format=torch.channels_last)
        x = conv(x, self.first, padding=1)
        for one, two in self.full:
            x += conv(conv(x, one, padding=1).relu_(), two, padding=1)
        x = conv(self.functional.avg_pool2d(x, 8), self.down, padding=1, stride=2)
        for kernel in self.deep:
            x = x + conv(x, kernel, padding=1).relu_()
        return x.mean()


class Perceptron(TorchModel):
    """Two large layers over [rows, width]: memory grows with the rows."""

    def __init__(self, width: int = 8192, hidden: int = 65_536) -> None:
        super().__init__()
        self.up, self.down = self.weight(hidden, width), self.weight(width, hidden)

    def infer(self, shape: Shape) -> Any:
        x = self.torch.rand(shape, device=self.device, dtype=self.up.dtype)
        return (self.functional.gelu(x @ self.up.T) @ self.down.T).mean()


MODELS: dict[str, type[TorchModel]] = {"text": Encoder, "image": Segmenter, "rows": Perceptron}
