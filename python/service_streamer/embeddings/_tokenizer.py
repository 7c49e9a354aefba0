"""Tokenizes texts in the thread of the caller."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .._base.messages import short, wrong_option
from ._errors import InvalidRequest

Item = tuple[Any, Any]
"""the token ids of a text, int64, and its token types if one is not 0"""

_UNLIMITED = 10**9  # what transformers has for a tokenizer without a length is larger
_PADS = ("[PAD]", "<pad>", "<|endoftext|>")


class Tokenizer:
    """Makes items of texts and of token ids. Any thread may call it.

    Args:
        tokenizer: of transformers or tokenizers, or a function of a text (or of a query and a text)
            that returns token ids, or a mapping with ``input_ids``.
        max_length: the most tokens of a text. None: what the tokenizer or the model says.
        truncate: cut longer texts. False: refuse them.
        model: of transformers, which knows how many ids and positions it has.
    """

    def __init__(
        self, tokenizer: Any, max_length: int | None, truncate: bool, model: Any = None
    ) -> None:
        self.truncates = truncate
        backend = getattr(tokenizer, "backend_tokenizer", tokenizer)  # that of transformers
        own = _copy_of(backend) if hasattr(backend, "encode_batch") else None
        shared = backend is not tokenizer  # its truncation is that of the last call of anybody
        if own is None and not callable(tokenizer):
            raise wrong_option(
                "tokenizer must be one of transformers or tokenizers, or a function of a text that "
                f"returns token ids, not {short(tokenizer)}",
                TypeError,
            )
        if max_length is None:
            cut = None if own is None or shared else own.truncation
            limit = cut["max_length"] if cut else getattr(tokenizer, "model_max_length", None)
            limits = [None if limit is None or limit > _UNLIMITED else limit, _positions_of(model)]
            max_length = _least(limits)
        self.max_length = max_length
        self._call: Callable[..., Any] = tokenizer
        self._own = own
        self._batch = None if own is None else getattr(own, "encode_batch_fast", own.encode_batch)
        if own is not None:
            own.no_truncation()
            if max_length is not None:
                side = getattr(tokenizer, "truncation_side", "right")
                own.enable_truncation(max_length, direction=side)
        size = getattr(own or tokenizer, "get_vocab_size", None)
        known = size() if size else getattr(tokenizer, "vocab_size", None)
        self.size = _least([known, _ids_known_to(model)])
        self.pad = _pad_of(tokenizer, own)

    def items(self, texts: Sequence[Any], query: str | None = None) -> list[Item]:
        """Return the items of some texts, or of pairs of a query and each text.

        Args:
            texts: of each a str, or a list or array of token ids.
            query: None: there are no pairs.

        Raises:
            InvalidRequest: a text is neither, is too long, or has no tokens.
        """
        strings = [text for text in texts if isinstance(text, str)]
        if query is not None and len(strings) < len(texts):
            raise InvalidRequest("a query is compared with texts, which must be str objects")
        if query is not None and texts:
            query = self._cut(query)
        found = iter(self._encoded(strings, query))
        return [
            self._item(place, *(next(found) if isinstance(text, str) else self._given(place, text)))
            for place, text in enumerate(texts)
        ]

    def _item(self, place: int, ids: Any, types: Any, too_long: bool) -> Item:
        if too_long and not self.truncates:
            raise InvalidRequest(f"text {place} has more than {self.max_length} tokens: shorten it")
        if not len(ids):
            raise InvalidRequest(f"text {place} has no tokens")
        types = np.array(types, np.int64) if types is not None and any(types) else None
        return np.array(ids, np.int64), types

    def _cut(self, query: str) -> str:
        """Return a query that is at most about twice as long as a text may be.

        The tokenizer makes each combination of the parts of a long query and of a long text.
        """
        if self._own is None or self.max_length is None or len(query) <= self.max_length:
            return query
        found = self._own.encode(query)
        if found.overflowing and not self.truncates:
            raise InvalidRequest(f"query has more than {self.max_length} tokens: shorten it")
        offsets = [each for part in (found, *found.overflowing[:1]) for each in part.offsets]
        spans = [(begin, end) for begin, end in offsets if begin < end]  # others are special tokens
        if not spans:
            return query
        return query[min(begin for begin, _ in spans) : max(end for _, end in spans)]

    def _encoded(self, texts: list[str], query: str | None) -> Any:
        """Yield the ids of each text, their types or None, and whether it was too long."""
        pairs: list[Any] = texts if query is None else [(query, text) for text in texts]
        if self._batch is not None:
            for found in self._batch(pairs) if pairs else ():
                yield found.ids, found.type_ids, bool(found.overflowing)
            return
        for pair in pairs:
            parts = (pair,) if query is None else pair
            ids, types = _ids_of(self._call(*parts))
            if (too_long := self._is_too_long(ids)) and hasattr(self._call, "model_max_length"):
                cut = self._call(*parts, truncation=True, max_length=self.max_length)
                ids, types = _ids_of(cut)
            most = self.max_length
            yield ids[:most], types and types[:most], too_long

    def _given(self, place: int, ids: Any) -> tuple[Any, None, bool]:
        try:
            array = np.asarray(ids)
        except ValueError:  # lists of different lengths
            array = np.asarray("")
        if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
            raise InvalidRequest(f"text {place} must be a str or token ids, not {short(ids)}")
        if array.size and not 0 <= array.min() <= array.max() < (self.size or np.inf):
            wrong = array.max() if array.min() >= 0 else array.min()
            known = "" if self.size is None else f" to {self.size - 1}"
            raise InvalidRequest(
                f"text {place} has the token id {wrong}, and the tokenizer of this model has "
                f"0{known}: send the text, or its tokens"
            )
        return array[: self.max_length], None, self._is_too_long(array)

    def _is_too_long(self, ids: Any) -> bool:
        return self.max_length is not None and len(ids) > self.max_length


def _copy_of(backend: Any) -> Any:
    """Return a copy. One that others truncate with fails with "Already borrowed" in threads."""
    own = type(backend).from_str(backend.to_str())
    own.no_padding()
    return own


def _pad_of(tokenizer: Any, own: Any) -> int:
    found = getattr(tokenizer, "pad_token_id", None)
    if found is None and own is not None:
        found = next(filter(None, map(own.token_to_id, _PADS)), None)
    return found or 0


def _least(limits: Sequence[int | None]) -> int | None:
    return min((each for each in limits if each is not None), default=None)


def _positions_of(model: Any) -> int | None:
    """Return how many positions a model of transformers has. None: it is another one."""
    most = getattr(getattr(model, "config", None), "max_position_embeddings", None)
    if type(most) is not int or most < 1:
        return None
    for name, part in getattr(model, "named_modules", tuple)():
        if name.endswith("position_embeddings") and getattr(part, "padding_idx", None) is not None:
            return int(most - part.padding_idx - 1)  # those of RoBERTa begin after that of padding
    return most


def _ids_known_to(model: Any) -> int | None:
    """Return how many ids a model of transformers has. None: it is another one."""
    try:
        most = model.get_input_embeddings().num_embeddings
    except Exception:  # none, or of another kind
        return None
    return most if isinstance(most, int) else None


def _ids_of(found: Any) -> tuple[Any, Any]:
    if isinstance(found, Mapping):
        return found["input_ids"], found.get("token_type_ids")
    return getattr(found, "ids", found), getattr(found, "type_ids", None)
