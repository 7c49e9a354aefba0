"""Version 2 knows capitals and punctuation, and that "not good" is not good."""

from __future__ import annotations

import re


def words_of(text: str) -> list[str]:
    joined = re.sub(r"\b(?:not|never)\s+", "not_", text.lower())
    return re.findall(r"\w+", joined)
