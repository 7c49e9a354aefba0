"""gRPC: the second front of the server, beside HTTP.

=============  ===================================================================================
front          listens, in the event loop of HTTP
calls          from bytes to messages, and from exceptions to status codes
inference      the methods of ``inference.GRPCInferenceService``
streaming      its method ModelStreamInfer
health         ``grpc.health.v1.Health``
reflection     ``grpc.reflection.v1.ServerReflection``, and ``v1alpha``
conversion     from messages to requests of the `Service`, and back
messages       the classes of the messages
=============  ===================================================================================

``messages.binpb`` has the descriptors of the ``.proto`` files.
"""

from __future__ import annotations

from ..._base.messages import missing_package

try:
    import google.protobuf  # noqa: F401
    import grpc  # noqa: F401
except ImportError as _error:
    raise missing_package(_error, "grpc") from _error
