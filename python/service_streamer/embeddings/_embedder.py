"""`Embedder`: texts to vectors, and a query and texts to scores."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from .. import RequestTimeout, StreamerStats, ThreadedStreamer
from .._base.messages import short, wrong_option
from .._base.options import count, flag, one_of
from .._base.types import Collate
from ..onnx import OnnxModel
from ..torch import NativeModel
from ._errors import InvalidRequest, InvalidVector, WrongTask
from ._models import FileModel, TextModel, TorchModel, load, parts_of
from ._rows import array_of
from ._tokenizer import Item, Tokenizer

if TYPE_CHECKING:
    from typing_extensions import Self

    from ..extend import BaseStreamer

Pooling = Literal["mean", "cls", "last"]
Text = str | Sequence[int]
Array = np.ndarray[Any, Any]

BATCH_SIZE = 256  # of the shortest texts; `max_tokens` bounds the others
BUCKETS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)  # tokens
LONG = 20_000  # characters that would hold up an event loop for about 5 ms
LETTERS = 4  # of a token, if nothing tells


@dataclasses.dataclass(frozen=True)
class Ranked:
    """A text of `Embedder.rerank`.

    Example:
        >>> Ranked(index=2, score=0.75).score
        0.75
    """

    index: int
    """of the text among those that were given"""
    score: float
    """how well it answers the query; a higher one is better"""


class Embedder:
    """Turns the texts of many callers into vectors, in batches by the number of tokens.

    Texts are tokenized in the threads of the callers, with a copy of the tokenizer. Batches have
    texts of similar length, so there is little padding. Equal texts that are queued or running
    are computed once. Any thread may call the methods.

    Args:
        model: has ``encode``, as `SentenceTransformer`, or ``predict`` of pairs, as `CrossEncoder`;
            or, with a tokenizer, a module of torch, an `OnnxModel`, a `NativeModel`, or the path of
            an ``.onnx`` or ``.pt2`` file. A module is put into eval mode. A reranker returns one
            number for each pair.
        tokenizer: of transformers or tokenizers; or a function of a text (for rerankers: of a query
            and a text) that returns token ids, or a mapping with ``input_ids``. None: the model has
            its own.
        max_tokens: the most tokens of a batch, with its padding.
        max_length: the most tokens of a text. None: what the model or the tokenizer says, the
            smaller one.
        truncate: cut longer texts, as ``encode`` does. False: raise `InvalidRequest`.
        pooling: of outputs for each token: their mean, or the output for the first token ("cls") or
            the last one. Outputs with one row for each text are not pooled.
        normalize: scale vectors to length 1, and scores by the logistic function to 0 to 1. None:
            with a tokenizer; without one as ``encode`` or ``predict`` returns them.
        collate: of a module of torch. "pad". "stack": only texts of the same length share a batch,
            and there is no mask. "pack": texts are joined without padding, and the module takes the
            arguments that `BatchedModel` has for it.
        device: "cpu", or a GPU such as "cuda:0", to which a module of torch is moved. None: where
            its parameters are.
        batch_size: the most texts of a batch. None: 256, or what a native model takes.
        coalesce, worker_timeout: as for the streamer. Without a deadline a call may embed any
            number of texts.
        streamer: makes the streamer of a model, a batch size and options, such as `Streamer`. None:
            a `ThreadedStreamer`.
        options: further options of the streamer, such as ``cache``, ``overflow``,
            ``max_queue_weight`` and ``bucket``, which is 16, 32 and so on to 4096 tokens.

    Raises:
        TypeError, ValueError: an argument is invalid. The message names it and its value.
        ImportError: the package of the model is missing.

    Attributes:
        streamer: the streamer, for the live page and metrics.

    Example:
        >>> import numpy
        >>> class Model:
        ...     def encode(self, texts):
        ...         return numpy.array([[len(text), 1.0] for text in texts])
        >>> with Embedder(Model()) as embedder:
        ...     embedder.embed(["one", "three"]).tolist()
        [[3.0, 1.0], [5.0, 1.0]]
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        max_tokens: int = 16384,
        *,
        max_length: int | None = None,
        truncate: bool = True,
        pooling: Pooling = "mean",
        normalize: bool | None = None,
        collate: Collate = "pad",
        device: str | None = None,
        batch_size: int | None = None,
        coalesce: Any = True,
        worker_timeout: float | None = None,
        streamer: Callable[..., BaseStreamer] | None = None,
        **options: Any,
    ) -> None:
        one_of("pooling", pooling, get_args(Pooling))
        one_of("collate", collate, get_args(Collate))
        flag("truncate", truncate)
        if normalize is not None:
            flag("normalize", normalize)
        if max_length is not None:
            count("max_length", max_length)
        of_torch = {"device": device, "collate": None if collate == "pad" else collate}
        self._tokenizer: Tokenizer | None = None
        self._embeds = self._ranks = True
        self._width = 0
        self._normalize = tokenizer is not None if normalize is None else normalize
        if tokenizer is None:
            run = self._own_way(model, max_length, truncate)
            _refuse(model, pooling=None if pooling == "mean" else pooling, **of_torch)
        else:
            self._tokenizer = Tokenizer(tokenizer, max_length, truncate, model)
            model = load(model, self._tokenizer.pad)
            if isinstance(model, OnnxModel | NativeModel):
                _refuse(model, **of_torch)
                run = FileModel(model, pooling)
            else:
                run = TorchModel(model, self._tokenizer, pooling, collate, device)
        if batch_size is None:
            native = isinstance(model, NativeModel)
            batch_size = min(BATCH_SIZE, model.signature.max_batch) if native else BATCH_SIZE
        self._model = model
        self._weigh: Callable[[Any], int] = _weigh
        if self._tokenizer is None:
            most = getattr(model, "max_seq_length", None)
            known = type(most) is int and most > 0
            self._weigh = functools.partial(_weigh_text, most=most if known else None)
        self.streamer: BaseStreamer = (streamer or ThreadedStreamer)(
            run,
            batch_size,
            weight=self._weigh,
            max_weight=count("max_tokens", max_tokens),
            padded=collate == "pad",
            coalesce=coalesce,
            worker_timeout=worker_timeout,
            **{"bucket": None if collate == "pack" else BUCKETS, **options},
        )

    def embed(
        self,
        texts: Text | Iterable[Text],
        *,
        dimensions: int | None = None,
        timeout: float | None = None,
        priority: int = 0,
        tenant: str | None = None,
    ) -> Array:
        """Return the vectors of some texts, in a batch with those of other callers.

        Args:
            texts: any number of texts, also none. Instead of a str, a text may be its token ids, to
                which no special tokens are added. A single str has one vector.
            dimensions: keep only so many numbers of each vector, scaled to length 1, for models
                that are trained for it (Matryoshka).
            timeout, priority, tenant: as for `predict` of a streamer.

        Returns:
            An array [texts, width], or [width] of a single str, float32.

        Raises:
            InvalidRequest: a text is invalid, or ``dimensions`` are more than those of the model.
            InvalidVector: the model returned NaN, or no vectors.
            WrongTask: the model is a reranker.
            Exception: what `predict` of a streamer raises.
        """
        rows = self._run(texts, None, timeout, priority=priority, tenant=tenant)
        return self._vectors(texts, rows, dimensions)

    async def aembed(
        self,
        texts: Text | Iterable[Text],
        *,
        dimensions: int | None = None,
        timeout: float | None = None,
        priority: int = 0,
        tenant: str | None = None,
    ) -> Array:
        """Do what `embed` does, for asyncio. Cancelling the task cancels the request.

        Long texts are tokenized in another thread.
        """
        _, rows = await self._arun(texts, None, timeout, priority=priority, tenant=tenant)
        return self._vectors(texts, rows, dimensions)

    def rerank(
        self,
        query: str,
        texts: Iterable[str],
        *,
        top_n: int | None = None,
        timeout: float | None = None,
        priority: int = 0,
        tenant: str | None = None,
    ) -> list[Ranked]:
        """Return the texts that answer a query best, the best one first.

        The model must be a reranker (cross-encoder). One that embeds would give texts the order
        which they have in a search by its vectors.

        Args:
            query: the question.
            texts: any number of texts.
            top_n: return only so many. None: all.
            timeout, priority, tenant: as for `predict` of a streamer.

        Raises:
            InvalidRequest: a text is invalid.
            InvalidVector: the model returned NaN, or no numbers.
            WrongTask: the model is no reranker.
            Exception: what `predict` of a streamer raises.
        """
        rows = self._run(texts, query, timeout, priority=priority, tenant=tenant)
        return self._ranking(rows, top_n)

    async def arerank(
        self,
        query: str,
        texts: Iterable[str],
        *,
        top_n: int | None = None,
        timeout: float | None = None,
        priority: int = 0,
        tenant: str | None = None,
    ) -> list[Ranked]:
        """Do what `rerank` does, for asyncio. Cancelling the task cancels the request."""
        _, rows = await self._arun(texts, query, timeout, priority=priority, tenant=tenant)
        return self._ranking(rows, top_n)

    def stats(self) -> StreamerStats:
        """Return the statistics of the streamer. Its items are texts, its weight is tokens."""
        return self.streamer.stats()

    def explain(self) -> str:
        """Return the report of the streamer."""
        return self.streamer.explain()

    def close(self, drain: bool = True, timeout: float | None = None) -> None:
        """Close the streamer. Arguments are those of its `close`."""
        self.streamer.close(drain, timeout)

    def __enter__(self) -> Self:
        self.streamer.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self.streamer.__exit__(*raised)

    def __repr__(self) -> str:
        where = "encode()" if self._tokenizer is None else "the threads of callers"
        return f"<{type(self).__name__} of {type(self._model).__name__}, tokens made in {where}>"

    # ----------------------------------------------------------------- private

    def _own_way(self, model: Any, max_length: int | None, truncate: bool) -> Any:
        """Return what runs a model that has a tokenizer of its own."""
        files = isinstance(model, str | os.PathLike | OnnxModel | NativeModel)
        method = next((each for each in ("encode", "predict") if hasattr(model, each)), None)
        if files or method is None:
            raise wrong_option(
                "model must have encode() or predict() if there is no tokenizer, not "
                f"{short(model)}: pass its tokenizer, too",
                TypeError,
            )
        self._ranks, self._embeds = method == "predict", method == "encode"
        found = parts_of(model, max_length, truncate)
        if found is None:
            if not truncate or max_length is not None:
                raise wrong_option(
                    f"{type(model).__name__} tokenizes itself, so that max_length and truncate are "
                    "its own: leave them out, or pass a tokenizer"
                )
            return TextModel(getattr(model, method))
        run, self._tokenizer = found
        return run

    def _items(self, texts: Any, query: str | None = None) -> list[Any]:
        """Return the items of texts, or of pairs with a query."""
        if not (self._embeds if query is None else self._ranks):
            raise self._wrong_task(query is not None)
        if query is not None and not isinstance(query, str):
            raise InvalidRequest(f"query must be a str, not {short(query)}")
        all_texts = [texts] if isinstance(texts, str) else list(texts)
        if self._tokenizer is not None:
            return list(self._tokenizer.items(all_texts, query))
        for place, text in enumerate(all_texts):
            if not isinstance(text, str):
                raise InvalidRequest(
                    f"text {place} must be a str, as the model tokenizes itself, not {short(text)}"
                )
        return all_texts if query is None else [(query, text) for text in all_texts]

    def _run(self, texts: Any, query: str | None, timeout: float | None, **how: Any) -> Any:
        """Return the rows of texts. The timeout holds for tokenizing, too."""
        begin = time.monotonic()
        items = self._items(texts, query)
        return self.streamer.predict(items, timeout=_left(timeout, begin), **how)

    async def _arun(
        self, texts: Any, query: str | None, timeout: float | None, **how: Any
    ) -> tuple[list[Any], Any]:
        """Return the items and the rows of texts. Long ones are tokenized in another thread."""
        begin = time.monotonic()
        texts = [texts] if isinstance(texts, str) else list(texts)
        size = sum(map(_length, texts)) + _length(query) * len(texts)  # a query is in each pair
        if size < LONG:
            items = self._items(texts, query)
        else:
            items = await asyncio.to_thread(self._items, texts, query)
        rows = await self.streamer.apredict(items, timeout=_left(timeout, begin), **how)
        return items, rows

    def _count(self, items: Iterable[Any]) -> int:
        """Return the tokens of items, estimated if the model tokenizes itself."""
        return sum(map(self._weigh, items))

    def _vectors(self, texts: Any, rows: Sequence[Any], dimensions: int | None) -> Array:
        vectors = self._matrix(rows)
        if vectors.shape[1] == 1 and len(vectors):
            raise self._wrong_task(False)
        width = vectors.shape[1]
        if dimensions is not None and len(vectors):
            if type(dimensions) is not int or not 1 <= dimensions <= width:
                raise InvalidRequest(f"dimensions must be 1 to {width}, not {dimensions!r}")
            vectors = vectors[:, :dimensions]
        if self._normalize or dimensions is not None:
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            vectors = vectors / np.maximum(lengths, 1e-12, dtype=np.float32)
        return vectors[0] if isinstance(texts, str) else vectors

    def _ranking(self, rows: Sequence[Any], top_n: int | None) -> list[Ranked]:
        if top_n is not None:
            count("top_n", top_n)
        scores = self._matrix(rows)
        if scores.shape[1] > 1:
            raise self._wrong_task(True)
        scores = scores.reshape(-1)
        order = np.argsort(-scores, kind="stable")[:top_n]  # scaled ones may be equal
        best = scores[order].astype(np.float64)
        if self._normalize:
            best = 0.5 * (1 + np.tanh(best / 2))  # the logistic function, without overflow
        return [Ranked(*each) for each in zip(order.tolist(), best.tolist(), strict=True)]

    def _matrix(self, rows: Sequence[Any]) -> Array:
        """Return the rows of the model as one array, float32."""
        if not len(rows):
            return np.empty((0, self._width), np.float32)
        arrays = [array_of(row) for row in rows]
        first = arrays[0]
        for place, each in enumerate(arrays):
            if each.shape != first.shape or each.ndim > 1 or each.dtype.kind not in "fiu":
                what = f"{each.dtype.name} of the shape {each.shape}"
                raise InvalidVector(f"the model returned no vector for text {place}, but {what}")
        matrix = np.stack(arrays).astype(np.float32, copy=False).reshape(len(arrays), -1)
        finite = np.isfinite(matrix).all(axis=1)
        if not finite.all():
            raise InvalidVector(f"the model returned NaN or infinity for text {finite.argmin()}")
        self._width = matrix.shape[1]
        return matrix  # type: ignore[no-any-return]

    def _wrong_task(self, ranks: bool) -> WrongTask:
        name = type(self._model).__name__
        if ranks:
            return WrongTask(
                f"{name} embeds and does not rerank: rerank() needs a model that returns one "
                "number for a query and a text (a cross-encoder)"
            )
        return WrongTask(f"{name} reranks and does not embed: use rerank()")


def _weigh(item: Item) -> int:
    return len(item[0])


def _weigh_text(item: str | tuple[str, str], most: int | None) -> int:
    """Estimate tokens: other letters than those of ASCII are one each."""
    text = item if isinstance(item, str) else "".join(item)
    plain = len(text) if text.isascii() else len(text.encode("ascii", "ignore"))
    weight = 1 + plain // LETTERS + len(text) - plain
    return weight if most is None else min(weight, most)


def _length(part: Any) -> int:
    """Return the letters or ids of a text; 0 if it has neither."""
    return len(part) if isinstance(part, str | list | tuple) else getattr(part, "size", 0)


def _left(timeout: float | None, begin: float) -> float | None:
    """Return what is left of a timeout. The streamer refuses one that is no number."""
    if not isinstance(timeout, int | float) or isinstance(timeout, bool) or not timeout > 0:
        return timeout
    left = timeout - (time.monotonic() - begin)
    if left <= 0:
        text = "the texts were not tokenized within the deadline of the request"
        raise RequestTimeout(f"{text} ({timeout:g} s)")
    return left


def _refuse(model: Any, **given: Any) -> None:
    """Raise ValueError for an option that has no effect on a model. None: it was not given."""
    for name, value in given.items():
        if value is not None:
            what = "a file" if isinstance(model, OnnxModel | NativeModel) else type(model).__name__
            raise wrong_option(
                f"{name}={value!r} is for a module of torch with its tokenizer, not for {what}: "
                "leave it out"
            )
