"""The model of this example: it tells glad texts from sad ones by counting words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from service_streamer import ManagedModel


class Sentiment(ManagedModel):
    """Each replica loads its own. A real model goes to a GPU here: Ray has chosen a free one."""

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
