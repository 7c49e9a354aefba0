"""`Embedder` beside `model.encode` behind a lock, and beside infinity_emb in the same process.

python -m studies.embeddings

32 clients ask for one text at a time, with log-normal lengths; no two texts are equal. The encoder
is BERT with random weights, 2 layers of width 128 (`--layers`, `--width`): with a larger one on a
CPU, the time of a text is that of its tokens, and no batch changes that. All is measured in turn; a
ratio is the median of those of the rounds. Two minutes. It needs torch and sentence-transformers in
the environment that runs it, and measures infinity_emb if it is there, too.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

import torch
from cases import common
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from service_streamer.embeddings import Embedder

CLIENTS = 32
SIGMA = 0.8
MEDIAN = 24  # words
LONGEST = 256  # tokens
WORDS = 20_000
WARM = 1.0  # s before each measurement
GOALS = {"lock": 2.0, "infinity": 1.0}

Measured = tuple[float, float]
"""texts per second, and the 99th percentile of their times in ms"""


def save_model(folder: Path, layers: int, width: int) -> None:
    """Save an encoder with random weights, and its tokenizer."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    names = [*special, *words()]
    backend = Tokenizer(WordPiece({name: n for n, name in enumerate(names)}, unk_token="[UNK]"))
    backend.pre_tokenizer = BertPreTokenizer()
    backend.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    named = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=LONGEST,
        **dict(zip(named, special, strict=True)),
    )
    torch.manual_seed(1)
    config = BertConfig(
        vocab_size=len(names),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // 32,
        intermediate_size=4 * width,
        max_position_embeddings=LONGEST,
    )
    BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def words() -> list[str]:
    syllables = [a + b for a in "bcdfghklmnprstvz" for b in "aeiou"]
    return [
        "".join(each) for each in itertools.islice(itertools.product(syllables, repeat=3), WORDS)
    ]


def texts(seed: int) -> Iterator[str]:
    """Yield texts of log-normal lengths for ever."""
    known, draw = words(), random.Random(seed)
    while True:
        length = max(1, round(draw.lognormvariate(0, SIGMA) * MEDIAN))
        yield " ".join(draw.choices(known, k=min(length, LONGEST)))


def by_threads(embed: Callable[[list[str]], Any], seconds: float) -> Measured:
    """Measure clients in threads, each of which asks again as soon as it has an answer."""
    times: list[float] = []
    end = time.perf_counter() + seconds

    def client(seed: int) -> None:
        for text in texts(seed):
            begun = time.perf_counter()
            if begun > end:
                return
            embed([text])
            times.append(time.perf_counter() - begun)

    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(CLIENTS)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return summary(times, time.perf_counter() - begun)


async def by_tasks(embed: Callable[[list[str]], Any], seconds: float) -> Measured:
    """The same with tasks."""
    times: list[float] = []
    end = time.perf_counter() + seconds

    async def client(seed: int) -> None:
        for text in texts(seed):
            begun = time.perf_counter()
            if begun > end:
                return
            await embed([text])
            times.append(time.perf_counter() - begun)

    begun = time.perf_counter()
    await asyncio.gather(*map(client, range(CLIENTS)))
    return summary(times, time.perf_counter() - begun)


def summary(times: list[float], seconds: float) -> Measured:
    return len(times) / seconds, 1000 * sorted(times)[int(0.99 * len(times))]


class Ways:
    """The ways to embed a text, which all have the same model."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._model = SentenceTransformer(self._folder, device="cpu")
        self._lock = threading.Lock()

    def ours(self, seconds: float) -> Measured:
        with Embedder(self._model) as embedder:
            by_threads(embedder.embed, WARM)
            found = by_threads(embedder.embed, seconds)
            self.told = f"{embedder!r}\n{embedder.explain()}"
        return found

    def ours_by_tasks(self, seconds: float) -> Measured:
        with Embedder(self._model) as embedder:
            asyncio.run(by_tasks(embedder.aembed, WARM))
            return asyncio.run(by_tasks(embedder.aembed, seconds))

    def lock(self, seconds: float) -> Measured:
        def encode(texts: list[str]) -> Any:
            with self._lock:
                return self._model.encode(texts, show_progress_bar=False)

        by_threads(encode, WARM)
        return by_threads(encode, seconds)

    def infinity(self, seconds: float) -> Measured:
        """As its documentation has it: an engine in the event loop of the clients."""
        from infinity_emb import AsyncEmbeddingEngine, EngineArgs

        async def run() -> Measured:
            arguments = EngineArgs(
                model_name_or_path=self._folder,
                engine="torch",
                device="cpu",
                dtype="float32",
                model_warmup=False,
                bettertransformer=False,
            )
            engine = AsyncEmbeddingEngine.from_args(arguments)
            async with engine:

                async def embed(texts: list[str]) -> Any:
                    return (await engine.embed(sentences=texts))[0]

                await by_tasks(embed, WARM)
                return await by_tasks(embed, seconds)

        return asyncio.run(run())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=128)
    options = parser.parse_args()
    print(f"torch {torch.__version__}, {os.cpu_count()} cores, "
          f"load average before {os.getloadavg()[0]:.2f}")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        save_model(Path(folder), options.layers, options.width)
        ways = Ways(Path(folder))
        named = {"ours": ways.ours, "lock": ways.lock}
        try:
            import infinity_emb  # noqa: F401
        except ImportError as error:
            print(f"infinity: left out: {error}")
        else:
            named |= {"infinity": ways.infinity, "ours, tasks": ways.ours_by_tasks}
        runs: dict[str, list[Measured]] = {name: [] for name in named}
        for _ in range(options.rounds):
            for name, way in named.items():
                runs[name].append(way(options.seconds))
        print(ways.told)
    for name, found in runs.items():
        rate, slowest = (statistics.median(each) for each in zip(*found, strict=True))
        told = f"{name:12} {rate:7.0f} texts/s  p99 {slowest:6.0f} ms"
        if name in GOALS:
            first = runs["ours, tasks"] if name == "infinity" else runs["ours"]
            ratios = [ours[0] / its[0] for ours, its in zip(first, found, strict=True)]
            told += f"  ours / it: {statistics.median(ratios):.2f} (goal {GOALS[name]})"
        print(told, flush=True)
    common.leave()


if __name__ == "__main__":
    main()
