"""Says whether a sentence sounds good or bad, by a list of words."""

from __future__ import annotations

from preprocess import words_of

GOOD = {"good", "fine", "happy", "merry"}
BAD = {"bad", "sad", "poor", "wicked"}


class Sentiment:
    def __init__(self, folder: str) -> None:
        self.folder = folder  # where weights would be

    def __call__(self, batch: list[str]) -> list[str]:
        return [sound_of(words_of(text)) for text in batch]


def sound_of(words: list[str]) -> str:
    score = sum((word in GOOD) - (word in BAD) for word in words)
    return "good" if score > 0 else "bad" if score < 0 else "neither"
