"""What a client sends: takes requests from the engine, and pickles them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ... import _core
from ..._base.errors import SerializationError, StreamerClosed
from ..._engine.pickling import refuse_item
from .. import cluster
from ..payloads import Store
from .sent import SentRequest

PACK = 1024  # most items in one call of the owner
PACK_BYTES = 32 << 20  # most bytes of large items in one call, unless one item has more


class Outgoing:
    """Used by the sender thread.

    Args:
        engine: of the client; its batches have one item each.
    """

    def __init__(self, engine: _core.Engine) -> None:
        self._engine = engine
        self._partial: list[SentRequest] = []  # requests of which items are missing

    def packs(self, first: _core.Batch) -> Iterator[list[SentRequest]]:
        """Take what waits, and yield requests for a call each. Their items become payloads.

        A request that cannot be pickled or stored fails, and is not among them.
        """
        sents: list[SentRequest] = []
        packed: list[list[bytes | int]] = []
        store = Store()
        for sent in self._gather(first):
            try:
                items = [_pack(store, item, index) for index, item in enumerate(sent.items)]
            except Exception as error:
                sent.fail(error)
                continue
            sents.append(sent)
            packed.append(items)
            if store.size >= PACK_BYTES:
                yield from _stored(sents, packed, store)
                sents, packed, store = [], [], Store()
        if sents:
            yield from _stored(sents, packed, store)

    def _gather(self, first: _core.Batch) -> list[SentRequest]:
        """Take what waits, and return the requests that are complete."""
        gathered: list[SentRequest] = []
        batch: Any = first
        taken = 0
        while batch:
            sent: SentRequest = batch.items[0]
            if not sent.batches:
                self._partial.append(sent)
            sent.batches.append(batch)
            if len(sent.batches) == len(sent.items):
                self._partial.remove(sent)
                gathered.append(sent)
            taken += 1
            batch = self._engine.next_batch(0) if taken < PACK else None
        for sent in [each for each in self._partial if each.ended]:
            self._partial.remove(sent)
            sent.release()
        return gathered


def _stored(
    sents: list[SentRequest], packed: list[list[bytes | int]], store: Store
) -> Iterator[list[SentRequest]]:
    try:
        ref = store.put()
    except cluster.Left as error:
        for sent in sents:
            sent.fail(StreamerClosed(f"the streamer is closed ({error})"))
        return
    except Exception as error:
        for sent in sents:
            text = f"an item does not fit into Ray's object store: {error}"
            sent.fail(SerializationError(text))
        return
    for sent, items in zip(sents, packed, strict=True):
        sent.items = [each if type(each) is bytes else (ref, each) for each in items]
    yield sents


def _pack(store: Store, item: Any, index: int) -> bytes | int:
    try:
        return store.pack(item)
    except Exception as error:
        refuse_item(error, (index, item))
