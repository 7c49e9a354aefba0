"""The errors of embedders."""

from __future__ import annotations

from .. import StreamerError


class InvalidRequest(ValueError):
    """A text, or what is asked of it, is invalid. The message names the text. HTTP: status 400.

    Example:
        >>> raise InvalidRequest("text 0 has no tokens")
        Traceback (most recent call last):
        service_streamer.embeddings.InvalidRequest: text 0 has no tokens
    """


class WrongTask(StreamerError):
    """The model embeds and does not rerank, or the other way round. HTTP: status 400.

    Example:
        >>> issubclass(WrongTask, StreamerError)
        True
    """


class InvalidVector(StreamerError):
    """The model returned no vector, or NaN. The message names the text. HTTP: status 500.

    Example:
        >>> issubclass(InvalidVector, StreamerError)
        True
    """
