"""The model: the mood of a sentence, from the weights of its words."""

import json
import re
from pathlib import Path


def load(folder):
    """Return the predict function of the version in a folder."""
    weights = json.loads(Path(folder, "weights.json").read_text())

    def predict(sentences):
        return [
            sum(weights.get(word, 0.0) for word in re.findall(r"\w+", sentence.lower()))
            for sentence in sentences
        ]

    return predict
