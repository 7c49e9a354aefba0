"""A pipeline of Hugging Face transformers, in a thread.

pip install service-streamer-ng numpy torch transformers
python hf_pipeline.py
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pays
import tiny_bert
from transformers import pipeline

from service_streamer import ThreadedStreamer


def load(folder: Path) -> Callable[[list[str]], list[dict[str, Any]]]:
    """Without `batch_size` a pipeline runs the texts of a list one by one."""
    classify = pipeline("text-classification", str(folder), device="cpu")

    def predict(texts: list[str]) -> list[dict[str, Any]]:
        return classify(texts, batch_size=len(texts))

    return predict


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        tiny_bert.make(Path(place, "model"))
        predict = load(Path(place, "model"))

    def scores(texts: list[str]) -> list[float]:
        return [each["score"] for each in predict(texts)]

    pays.report(scores, tiny_bert.TEXTS)
    streamer = ThreadedStreamer(scores, batch_size=64, weight=len, bucket=(16, 32, 64))
    pays.compare(streamer, scores, tiny_bert.TEXTS)


if __name__ == "__main__":
    main()
