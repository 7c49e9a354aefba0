"""A server of the Open Inference Protocol for the models of a hub.

``service-streamer serve models/ --http 0.0.0.0:8000`` starts it. `create_app` returns its routes as
an application of ASGI, to be mounted in that of FastAPI or Starlette.

How it works
------------
One asyncio event loop does all of it. A front brings the requests of one protocol to the `Service`,
which turns tensors into items, awaits the hub, and turns the outputs into tensors. The hub runs its
models as always: in threads, worker processes or C++ threads.

- `_http.routes.Application` has the routes, and knows no server. `_http.asgi.AsgiApplication` makes
  an application of ASGI of it, and `_http.bodies.Bodies` reads the bodies.
- `_http.front.HttpFront` is uvicorn in this process, for ``serve``. `_http.connection.Connection`
  and `_http.parser.Parser` add the limits that uvicorn and httptools do not have.
- `_http.large_json.LargeJson` parses large bodies in a process of its own.
- `_grpc.front.GrpcFront` listens for gRPC, which reads and writes in threads of its own.
- Each request is a task. If the client goes, the task is cancelled, and so is its request in the
  hub.
- `_triton` has the statistics and configurations of Triton, `_access_log` the access log, and
  `_caller_trace` makes spans of requests children of those of their clients.
- `_errors.failure` is the one table of what an exception means to a client.
"""

from __future__ import annotations

from .._base.messages import missing_package

try:
    import numpy  # noqa: F401
    import orjson  # noqa: F401
except ImportError as _error:
    raise missing_package(_error, "server") from _error

from ._app import create_app, lifespan
from ._errors import InvalidInput

__all__ = ["InvalidInput", "create_app", "lifespan"]

for _name in __all__:  # help() and tracebacks show the public import path
    globals()[_name].__module__ = __name__
del _name
