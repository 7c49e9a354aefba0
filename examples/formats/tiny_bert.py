"""Makes the folder of a small BERT with random weights, so that nothing is downloaded.

A folder of your own is what `save_pretrained` of transformers writes.
"""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

WORDS = ["a", "good", "bad", "film", "book", "with", "an", "end", "that", "i", "like", "not"]
MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXTS = [" ".join(WORDS[n % 3 : n % 3 + 1 + n % 9]) for n in range(64)]


def make(folder: Path) -> None:
    folder.mkdir()
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join([*MARKS, *WORDS]))
    BertTokenizerFast(str(vocabulary)).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(MARKS) + len(WORDS),
        hidden_size=128,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=4,
    )
    BertForSequenceClassification(config).save_pretrained(folder)
