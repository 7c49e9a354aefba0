"""``streamer.map``: a lazy generator of the outputs of many items, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sized
from itertools import islice
from typing import Any

from .._base.errors import QueueFull
from .._base.messages import missing_package
from .._engine.future import Future
from .._engine.outputs import is_frame, rows_by


def map_items(
    submit: Callable[[list[Any]], Future],
    iterable: Iterable[Any],
    *,
    chunk_size: int,
    in_flight: int,
    progress: bool,
) -> Generator[Any, None, None]:
    """Check the arguments now; submit nothing before the first output is requested.

    Args:
        submit: submits one chunk to the model.
        iterable: is read at most `in_flight` chunks ahead of the consumer.
        chunk_size: items per request.
        in_flight: most chunks in flight.
        progress: show a progress bar (needs tqdm).
    """
    kind = type(iterable).__name__
    if isinstance(iterable, str | bytes | bytearray | Mapping):
        raise TypeError(
            f"map() takes an iterable of items, not a {kind}; pass a list for a single item"
        )
    if is_frame(iterable):
        rows = rows_by(iterable, "frame")
        raise TypeError(f"map() takes an iterable of items, not a {kind}: pass {rows}")
    open_bar = _progress_bar(iterable) if progress else None
    return _outputs(submit, iter(iterable), chunk_size, in_flight, open_bar)


def _outputs(
    submit: Callable[[list[Any]], Future],
    items: Iterator[Any],
    chunk_size: int,
    in_flight: int,
    open_bar: Callable[[], Any] | None,
) -> Generator[Any, None, None]:
    bar = open_bar() if open_bar is not None else None
    under_way: deque[Future] = deque()
    chunk: list[Any] = []
    try:
        while True:
            while len(under_way) < in_flight:
                chunk = chunk or list(islice(items, chunk_size))
                if not chunk:
                    break
                try:
                    under_way.append(submit(chunk))
                except QueueFull:
                    if not under_way:
                        raise
                    break  # the replies to our own requests make room
                chunk = []
            if not under_way:
                return
            outputs = under_way[0].result()
            under_way.popleft()
            for output in outputs:
                if bar is not None:
                    bar.update()
                yield output
    finally:
        # After an error, or if the consumer stops early, the remaining outputs are not needed.
        for future in under_way:
            future._abandon()
        if bar is not None:
            bar.close()


def _progress_bar(iterable: Iterable[Any]) -> Callable[[], Any]:
    try:
        from tqdm.auto import tqdm
    except ImportError as error:
        raise missing_package(error, "progress") from error
    total = len(iterable) if isinstance(iterable, Sized) else None
    return lambda: tqdm(total=total, unit="item")
