"""Version 1 takes words as they are."""

from __future__ import annotations


def words_of(text: str) -> list[str]:
    return text.split()
