"""The exceptions of a hub.

::

    StreamerError
    ├── UnknownModel             the hub has no such model, version or label (also a LookupError)
    ├── NoParameters             a request has parameters, and its version takes none
    └── ModelLoadError           the model cannot be loaded (__cause__: the reason)
        ├── ModelTooLarge        it needs more memory than the whole budget
        └── NoRoomForModel       the loaded models are pinned, and leave too little room
"""

from __future__ import annotations

from .._base.errors import StreamerError
from .._base.messages import describe
from .._base.model_errors import without_frames


class UnknownModel(StreamerError, LookupError):
    """The hub has no model, version or label of this name. Also a LookupError.

    Example:
        >>> with ModelHub({"sorted": ModelSpec(sorted, batch_size=64)}) as hub:
        ...     hub.predict("sortd", [1, 2])
        Traceback (most recent call last):
        service_streamer.hub.UnknownModel: ...
    """


class NoParameters(StreamerError):
    """The request has parameters, and the version that it has come to takes none.

    The version for which it was meant has been replaced meanwhile, or the version is a canary.

    Example:
        >>> with ModelHub({"sorted": ModelSpec(sorted, batch_size=64)}) as hub:
        ...     hub.predict("sorted", view_of(hub).with_parameters([1, 2], {"reverse": True}))
        Traceback (most recent call last):
        service_streamer.hub.NoParameters: ...
    """


class ModelLoadError(StreamerError):
    """The model cannot be loaded. The ``__cause__`` is the exception of the attempt.

    After a failed attempt the hub waits before the next one, at first 1 second and at most
    1 minute. Requests that come meanwhile raise this error at once. `ModelHub.load` does not wait.

    Example:
        >>> def load():
        ...     raise OSError("there are no weights")
        >>> with ModelHub({"broken": ModelSpec.factory(load)}) as hub:
        ...     hub.predict("broken", [1, 2])
        Traceback (most recent call last):
        service_streamer.hub.ModelLoadError: ...OSError: there are no weights
    """

    def copy(self) -> ModelLoadError:
        """Return the same error for another caller."""
        copied = type(self)(*self.args)
        copied.__cause__ = self.__cause__
        return copied


class ModelTooLarge(ModelLoadError):
    """The model needs more memory than the whole budget of the hub.

    Only `ModelHub.load` tries it again.

    Example:
        >>> def load():
        ...     weights = bytearray(32 << 20)
        ...     return ThreadedStreamer(lambda batch: [len(weights)] * len(batch), batch_size=64)
        >>> with ModelHub({"large": ModelSpec.factory(load)}, memory_budget="1MB") as hub:
        ...     hub.predict("large", [1, 2])
        Traceback (most recent call last):
        service_streamer.hub.ModelTooLarge: ...
    """


class NoRoomForModel(ModelLoadError):
    """The models that stay loaded leave too little room, because they are pinned.

    Example:
        >>> models = {
        ...     "first": ModelSpec(sorted, batch_size=64, pin=True, load="start"),
        ...     "second": ModelSpec(sorted, batch_size=64),
        ... }
        >>> with ModelHub(models, max_loaded=1) as hub:
        ...     hub["first"].wait_ready()
        ...     hub.predict("second", [1, 2])
        Traceback (most recent call last):
        service_streamer.hub.NoRoomForModel: ...
    """


def load_error(name: str, error: BaseException) -> ModelLoadError:
    """Return the error of a load, without the frames, which keep the model alive."""
    if isinstance(error, ModelLoadError):
        error.__traceback__ = None
        return error
    failure = ModelLoadError(f"model {name} cannot be loaded: {describe(error)}")
    if error.__cause__ is None:
        error = without_frames(error, error.__traceback__)
    error.__traceback__ = None
    failure.__cause__ = error
    return failure
