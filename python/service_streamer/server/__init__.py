"""A server of the Open Inference Protocol for the models of a hub.

``python -m service_streamer serve models/ --http 0.0.0.0:8000`` starts it.

How it works
------------
One asyncio event loop, in the main thread, does all of it. A `Front` brings the requests of one
protocol to the `Service`, which turns tensors into items, awaits the hub, and turns the outputs
into tensors. The hub runs its models as always: in threads, worker processes or C++ threads.

- `_http.routes.Application` has the routes, and knows no socket. `_http.front.HttpFront` listens. A
  `_http.connection.Connection` parses requests with httptools, and its `_http.answers.Answers`
  write responses.
- `_grpc.front.GrpcFront` listens for gRPC, which reads and writes in threads of its own.
- Each request is a task. If the client goes, the task is cancelled, and so is its request in the
  hub.
- `_errors.failure` is the one table of what an exception means to a client.
"""

from __future__ import annotations

from .._messages import missing_package

try:
    import httptools  # noqa: F401
    import numpy  # noqa: F401
    import orjson  # noqa: F401
    import uvloop  # noqa: F401
except ImportError as _error:
    raise missing_package(_error, "server") from _error

from ._errors import InvalidInput

__all__ = ["InvalidInput"]

for _name in __all__:  # help() and tracebacks show the public import path
    globals()[_name].__module__ = __name__
del _name
