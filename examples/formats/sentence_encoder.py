"""A model of sentence-transformers, in a thread.

pip install service-streamer-ng numpy torch sentence-transformers
python sentence_encoder.py
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pays
import tiny_bert
from sentence_transformers import SentenceTransformer

from service_streamer import ThreadedStreamer

BATCH = 64


def load(folder: Path) -> Callable[[list[str]], Any]:
    """`encode` tokenizes, pads and divides batches itself, and gives the GIL back in torch."""
    model = SentenceTransformer(str(folder), device="cpu")

    def predict(texts: list[str]) -> Any:
        return model.encode(texts, batch_size=BATCH, show_progress_bar=False)

    return predict


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        tiny_bert.make(Path(place, "model"))
        predict = load(Path(place, "model"))
    pays.report(predict, tiny_bert.TEXTS)
    # Texts of similar length share a batch, so that little is padded.
    lengths = {"weight": len, "bucket": (16, 32, 64, 128)}
    streamer = ThreadedStreamer(predict, batch_size=BATCH, **lengths)
    pays.compare(streamer, predict, tiny_bert.TEXTS)


if __name__ == "__main__":
    main()
