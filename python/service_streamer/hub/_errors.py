"""The exceptions of a hub.

::

    StreamerError
    ├── UnknownModel             the hub has no such model, version or label (also a LookupError)
    └── ModelLoadError           the model cannot be loaded (__cause__: the reason)
        ├── ModelTooLarge        it needs more memory than the whole budget
        └── NoRoomForModel       the loaded models are pinned, and leave too little room
"""

from __future__ import annotations

from .._errors import StreamerError
from .._model_errors import without_frames


class UnknownModel(StreamerError, LookupError):
    """The hub has no model, version or label of this name. Also a LookupError."""


class ModelLoadError(StreamerError):
    """The model cannot be loaded. The ``__cause__`` is the exception of the attempt.

    After a failed attempt the hub waits before the next one, at first 1 second and at most
    1 minute. Requests that come meanwhile raise this error at once. `ModelHub.load` does not wait.
    """

    def copy(self) -> ModelLoadError:
        """Return the same error for another caller."""
        copied = type(self)(*self.args)
        copied.__cause__ = self.__cause__
        return copied


class ModelTooLarge(ModelLoadError):
    """The model needs more memory than the whole budget of the hub.

    Only `ModelHub.load` tries it again.
    """


class NoRoomForModel(ModelLoadError):
    """The models that stay loaded leave too little room, because they are pinned."""


def load_error(name: str, error: BaseException) -> ModelLoadError:
    """Return the error of a load, without the frames, which keep the model alive."""
    if isinstance(error, ModelLoadError):
        error.__traceback__ = None
        return error
    failure = ModelLoadError(f"model {name} cannot be loaded: {type(error).__name__}: {error}")
    if error.__cause__ is None:
        error = without_frames(error, error.__traceback__)
    error.__traceback__ = None
    failure.__cause__ = error
    return failure
