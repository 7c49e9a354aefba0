"""Runs a model whose outputs come piece by piece."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence, Set
from typing import Any

from .. import _core
from .._base.errors import OutputSizeMismatch
from .._base.messages import describe, see, short
from .._base.model_errors import OutputRefused, copy_error, detached, for_callers
from .._base.request_context import reader_of
from .._engine import pickling
from .opening import open_writer
from .writer import Writer, flush, wait_for_room

_logger = logging.getLogger("service_streamer")

Predict = Callable[[list[Any]], Any]
Writers = dict[int, Writer]
"""the writers by the index of the item in the batch"""


class Collecting:
    """A generator function as a model for requests that want all pieces together."""

    def __init__(self, generate: Predict) -> None:
        self.generate = generate
        functools.update_wrapper(self, generate, updated=())

    def __call__(self, items: list[Any]) -> Any:
        outputs = self.generate(items)
        if isinstance(outputs, Generator):
            return _run_generator(outputs, items, {}, lambda _: False)
        return outputs


def run(predict: Predict, batch: _core.Batch) -> Any:
    """Run the model once, and send the pieces for the requests of the batch that are streams.

    Returns:
        The outputs for ``Batch.complete``.

    Raises:
        BaseException: that of the model. No piece was sent, so the batch may be run again.
    """
    readers = [(index, reader_of(context)) for context, _, _, index in batch.contexts]
    writers = {index: open_writer(reader) for index, reader in readers if reader is not None}
    items = batch.items
    outputs = batch.run(predict.generate if isinstance(predict, Collecting) else predict)
    if isinstance(outputs, Generator):
        return _run_generator(outputs, items, writers, batch.ended_except)
    if isinstance(outputs, list | tuple) and len(outputs) == len(items):
        outputs = list(outputs)
        found = {
            index: (output, writers[index])
            for index, output in enumerate(outputs)
            if index in writers and isinstance(output, Iterator)
        }
        for index, output in _run_iterators(found):
            outputs[index] = output
    return outputs


def _run_generator(
    generator: Generator[Any, None, None],
    items: list[Any],
    writers: Writers,
    others_ended: Callable[[Writers], bool],
) -> list[Any]:
    outputs: list[Any] = [writers.get(index, []) for index in range(len(items))]
    try:
        for pieces in generator:
            # the model may use the memory of arrays again for its next pieces
            _distribute(_core.own_outputs(_checked(pieces, len(items))), outputs)
            flush()
            live = [each for each in writers.values() if not each.cancelled]
            if not live and others_ended(writers):
                # No caller is left. The engine may not know yet that the deadlines have passed.
                outputs = [
                    pickling.expired() if isinstance(each, list) else each for each in outputs
                ]
                break
            if not all(writer.room for writer in live):
                wait_for_room(live)
    except BaseException as error:
        fault = isinstance(error, OutputSizeMismatch | OutputRefused)
        if not fault and not any(writer.sent for writer in writers.values()):
            raise
        _fail(outputs, detached(error))
    finally:
        _close(generator)
    for output in outputs:
        if isinstance(output, Writer):
            output.end()
    flush()
    return [each.output if isinstance(each, Writer) else each for each in outputs]


def _fail(outputs: list[Any], error: Exception) -> None:
    """End what has not ended with a copy of the error."""
    for index, output in enumerate(outputs):
        if isinstance(output, Writer):
            output.end(copy_error(error))
        elif isinstance(output, list):
            outputs[index] = copy_error(error)


def _checked(pieces: Any, expected: int) -> Sequence[Any]:
    if isinstance(pieces, str | bytes | Mapping | Set) or not hasattr(pieces, "__len__"):
        raise OutputRefused(
            see(
                "predict_function is a generator function, so it must yield a sequence with one "
                f"piece per item, got the {type(pieces).__name__} {short(pieces)}: to return "
                "outputs, use return in place of yield",
                "a-generator-function",
            )
        )
    if len(pieces) != expected:
        raise OutputSizeMismatch(expected, len(pieces), "yielded as the pieces of one step")
    return pieces  # type: ignore[no-any-return]


def _distribute(pieces: Sequence[Any], outputs: list[Any]) -> None:
    """Give the pieces to the writers among the outputs, and to the lists of other requests."""
    for index, (piece, output) in enumerate(zip(pieces, outputs, strict=True)):
        if piece is None:
            continue
        if isinstance(output, Writer):
            if isinstance(piece, BaseException):
                # A copy: the model may use the same exception for several items.
                output.end(for_callers(copy_error(piece)))
            else:
                output.put(piece)
        elif isinstance(output, list):
            if isinstance(piece, BaseException):
                outputs[index] = piece
            else:
                output.append(piece)


def _run_iterators(found: Mapping[int, tuple[Any, Writer]]) -> Iterator[tuple[int, Any]]:
    """Advance the iterators in turn. Yields the output of each item whose iterator has ended."""
    live = dict(found)
    try:
        while live:
            writers = [writer for _, writer in live.values()]
            if not any(each.room or each.cancelled for each in writers):
                wait_for_room(writers, any_suffices=True)
            for index, (iterator, writer) in list(live.items()):
                if writer.cancelled:
                    _close(iterator)
                    output = writer.output
                elif not writer.room or (output := _advance(iterator, writer)) is None:
                    continue
                del live[index]
                yield index, output
            flush()
    finally:
        for iterator, _ in live.values():
            _close(iterator)


def _advance(iterator: Any, writer: Writer) -> Any:
    """Send the next piece. Returns the output of the item if there is none."""
    try:
        piece = _core.own_outputs(next(iterator))
    except StopIteration:
        writer.end()
        return writer.output
    except BaseException as error:
        piece = detached(error)
    if isinstance(piece, BaseException):
        _close(iterator)
        writer.end(for_callers(copy_error(piece)))
        return writer.output
    if piece is not None:
        writer.put(piece)
    return None


def _close(iterator: Any) -> None:
    close = getattr(iterator, "close", None)
    if callable(close):
        try:
            close()
        except BaseException as error:  # the pieces count all the same
            about = {"error": describe(error)}
            _logger.warning(
                "a model that streams raised when it was closed", exc_info=True, extra=about
            )
