"""Tokenizers and encoders for the tests of embedders."""

import threading

import numpy as np

VOCABULARY = 100
BEGIN, END = 1, 2


def id_of(word):
    return 3 + sum(word.encode()) % (VOCABULARY - 3)


class Words:
    """A tokenizer: an id for each word, between two marks. It remembers its threads."""

    vocab_size = VOCABULARY
    pad_token_id = 0

    def __init__(self, model_max_length=64):
        self.model_max_length = model_max_length
        self.threads = set()

    def __call__(self, *texts, truncation=False, max_length=None):
        self.threads.add(threading.get_ident())
        ids, types = [BEGIN], [0]
        for place, text in enumerate(texts):
            ids += [*map(id_of, text.split()), END]
            types += [place] * (len(text.split()) + 1)
        if truncation and len(ids) > max_length:
            ids = [*ids[: max_length - 1], END]
        return {"input_ids": ids, "token_type_ids": types[: len(ids)]}


def bare(text, other=""):
    """A tokenizer without marks: an empty text has no tokens."""
    return list(map(id_of, [*text.split(), *other.split()]))


def vector_of(text):
    return [len(text), *np.frombuffer((text + "   ").encode()[:3], "u1")]


class Encodes:
    """What has `encode`: three numbers of the first letters. It remembers its batches."""

    def __init__(self, encode=lambda texts: np.array([vector_of(each) for each in texts], "f4")):
        self.batches = []
        self._encode = encode

    def encode(self, sentences, batch_size=32, show_progress_bar=True):
        assert (batch_size, show_progress_bar) == (len(sentences), False)
        self.batches.append(list(sentences))
        return self._encode(sentences)


class Predicts:
    """What has `predict`: how many words of a query a text has."""

    def predict(self, pairs):
        return [float(len({*query.split()} & {*text.split()})) for query, text in pairs]
