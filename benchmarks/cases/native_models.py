"""The models of the native cases, as modules of torch and as packages.

torch is what `make test-torch` has installed, beside any environment.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "build" / "torch"), str(ROOT / "build" / "weights")]

import torch  # noqa: E402

MODELS = ROOT / "build" / "bench-models"
WIDTH, LENGTH = 128, 32


class Encoder(torch.nn.Module):
    """4 layers of width 128, sequences of 32."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.words = torch.nn.Embedding(1000, WIDTH)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.layers(self.words(ids)).mean(1)


class Nothing(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 0


class Corner(torch.nn.Module):
    """Looks at one number of each image: only making the batch takes time."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, 0, 0, 0] + 0


class Masked(torch.nn.Module):
    """Looks at one number of each input of padded sequences."""

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return ids[:, 0] + mask[:, 0] + lengths


def ids() -> torch.Tensor:
    return torch.randint(1000, (LENGTH,))


EXAMPLES: dict[str, tuple[type[torch.nn.Module], Callable[[], Any], dict[str, Any]]] = {
    "encoder": (Encoder, lambda: torch.randint(1000, (2, LENGTH)), {}),
    "nothing": (Nothing, lambda: torch.zeros(2, 8), {}),
    "corner": (Corner, lambda: torch.zeros(2, 3, 224, 224), {}),
    "masked": (
        Masked,
        lambda: (
            *(torch.zeros(2, 16, dtype=torch.int64) for _ in range(2)),
            torch.zeros(2, dtype=torch.int64),
        ),
        {"sequence": (1, 512)},
    ),
}


def package(name: str) -> Path:
    """The compiled model, made when it is first needed."""
    path = MODELS / f"{name}.pt2"
    if not path.exists():
        import service_streamer.torch as native

        MODELS.mkdir(parents=True, exist_ok=True)
        module, example, options = EXAMPLES[name]
        native.compile(module().eval(), example(), path, max_batch=64, **options)
    return path


def eager(module: torch.nn.Module) -> Callable[[list[Any]], Any]:
    """The module as a predict function."""

    @torch.no_grad()
    def predict(batch: list[Any]) -> Any:
        return module(torch.stack(batch))

    return predict
