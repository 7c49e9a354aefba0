"""The messages of the protocols, as classes of protobuf.

They are in a descriptor pool of their own. The default pool refuses a second file that defines the
same names, and the process may also import the client of Triton or KServe.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

INFERENCE = "inference.GRPCInferenceService"
HEALTH = "grpc.health.v1.Health"


def _load() -> Any:
    pool = descriptor_pool.DescriptorPool()
    data = resources.files(__package__).joinpath("messages.binpb").read_bytes()
    for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        pool.Add(file)
    return pool


_pool = _load()


def service(name: str) -> Any:
    """Return the descriptor of a service, `INFERENCE` or `HEALTH`."""
    return _pool.FindServiceByName(name)


def message(name: str) -> Any:
    """Return the class of a message by its full name."""
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(name))
