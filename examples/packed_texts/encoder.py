"""An encoder of texts with random weights, for padded batches and for packed ones.

python encoder.py        # embeds texts of several lengths in both ways, and compares
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from service_streamer import ThreadedStreamer
from service_streamer.torch import BatchedModel

WIDTH = 256
HEADS = 4
LAYERS = 4
WORDS = 8192
LONGEST = 256  # tokens
BUCKETS = (16, 32, 64, 128)  # tokens

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""takes queries, keys and values: [..., WIDTH] each. Returns the same shape"""


class Layer(nn.Module):
    """Attention and a feed-forward block, each with a residual connection and normalization."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.first_norm, self.second_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor, attend: Attend) -> Tensor:
        """x: [..., WIDTH]. Returns the shape of x."""
        x = self.first_norm(x + self.out(attend(*self.project(x).chunk(3, -1))))
        return self.second_norm(x + self.down(functional.gelu(self.up(x))))


class Encoder(nn.Module):
    """Maps token ids to a vector of unit length for each text, in padded batches."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(WORDS, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """ids, mask: int64 [batch, tokens]. Returns float32 [batch, WIDTH]."""
        is_token = mask.bool()

        def attend(*parts: Tensor) -> Tensor:
            heads = [part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in parts]
            seen = functional.scaled_dot_product_attention(
                *heads, attn_mask=is_token[:, None, None, :]
            )
            return seen.transpose(1, 2).flatten(2)

        x = self.encode(ids, torch.arange(ids.shape[1], device=ids.device), attend)
        return functional.normalize((x * mask[:, :, None]).sum(1), dim=-1)

    def encode(self, ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """ids: [...]. Returns [..., WIDTH]."""
        x = self.words(ids) + self.positions(positions)
        for layer in self.layers:
            x = layer(x, attend)
        return x


class PackedEncoder(nn.Module):
    """The same encoder, in packed batches. All but the attention sees each token by itself."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(
        self, ids: Tensor, cu_seqlens: Tensor, position_ids: Tensor, max_seqlen: int
    ) -> Tensor:
        """ids: int64 [tokens of all texts]. Returns float32 [texts, WIDTH]."""
        lengths = cu_seqlens.diff()
        sizes = lengths.tolist()

        def attend(*parts: Tensor) -> Tensor:
            heads = [part.unflatten(-1, (HEADS, -1)).transpose(0, 1)[None] for part in parts]
            texts = zip(*(part.split(sizes, 2) for part in heads), strict=True)
            seen = [functional.scaled_dot_product_attention(*text) for text in texts]
            return torch.cat(seen, 2)[0].transpose(0, 1).flatten(1)

        x = self.encoder.encode(ids, position_ids, attend)
        texts = torch.arange(len(sizes), device=ids.device).repeat_interleave(lengths)
        sums = x.new_zeros(len(sizes), WIDTH).index_add_(0, texts, x)
        return functional.normalize(sums, dim=-1)


def make_encoder() -> Encoder:
    """Make the encoder, in eval mode."""
    torch.manual_seed(1)
    return Encoder().eval().requires_grad_(False)


def padded_streamer(encoder: Encoder, bucket: Sequence[int] | None = BUCKETS) -> ThreadedStreamer:
    """Texts of similar length run together, and are padded to the longest."""
    model = BatchedModel(encoder, collate="pad", mask="mask")
    weight = None if bucket is None else len
    return ThreadedStreamer(model, batch_size=64, weight=weight, bucket=bucket)


def packed_streamer(encoder: Encoder) -> ThreadedStreamer:
    """Texts of any length run together, up to a number of tokens."""
    model = BatchedModel(PackedEncoder(encoder), collate="pack")
    return ThreadedStreamer(model, batch_size=64, weight=len, max_weight=8192)


def text(dice: random.Random, median: int = 20, sigma: float = 0.8) -> Tensor:
    """Return the ids of a text of log-normal length: int64 [tokens]."""
    length = round(dice.lognormvariate(math.log(median), sigma))
    return torch.tensor(dice.choices(range(WORDS), k=min(max(length, 2), LONGEST)))


def main() -> None:
    encoder, dice = make_encoder(), random.Random(1)
    texts = [text(dice) for _ in range(64)]
    with padded_streamer(encoder) as padded, packed_streamer(encoder) as packed:
        expected = torch.stack(padded.predict(texts))
        received = torch.stack(packed.predict(texts))
    difference = float((expected - received).abs().max())
    print(f"{len(texts)} texts of {min(map(len, texts))} to {max(map(len, texts))} tokens:")
    print(f"the vectors of packed and of padded batches differ by at most {difference:.0e}")


if __name__ == "__main__":
    main()
