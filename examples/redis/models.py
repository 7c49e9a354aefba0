"""The models of this example: the tutorial's text-infilling model and a second one."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "text_infilling"))

from model import BadSentence, ManagedBertModel

from service_streamer import ManagedModel

__all__ = ["BadSentence", "ManagedBertModel", "Sentiment"]


class Sentiment(ManagedModel):
    """Tells if a text is glad or sad by counting words. Stands for a second model."""

    def init_model(self) -> None:
        self.model = {
            **dict.fromkeys(["good", "glad", "happy", "love", "merry", "nice", "joy"], 1),
            **dict.fromkeys(["bad", "sad", "sorry", "hate", "ugly", "angry", "cry"], -1),
        }

    def predict(self, batch: Sequence[str]) -> list[float]:
        return [self._score(text) for text in batch]

    def _score(self, text: str) -> float:
        found = [self.model.get(word, 0) for word in re.findall(r"\w+", text.lower())]
        counted = [value for value in found if value]
        return sum(counted) / len(counted) if counted else 0.0
