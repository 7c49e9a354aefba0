"""A server of the Open Inference Protocol for the models of a hub.

::

    python -m service_streamer serve models/ --http 0.0.0.0:8000
"""

from __future__ import annotations

try:
    import numpy  # noqa: F401
except ImportError as _error:
    raise ImportError(
        'service_streamer.server needs numpy: pip install "service-streamer[server]"'
    ) from _error

from ._errors import InvalidInput

__all__ = ["InvalidInput"]

for _name in __all__:  # help() and tracebacks show the public import path
    globals()[_name].__module__ = __name__
del _name
