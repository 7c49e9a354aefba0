"""The messages of the protocols, as classes of protobuf.

They are in a descriptor pool of their own. The default pool refuses a second file that defines the
same names, and the process may also import the client of Triton or KServe.
"""

from __future__ import annotations

import contextlib
from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

INFERENCE = "inference.GRPCInferenceService"
HEALTH = "grpc.health.v1.Health"
REFLECTION = "grpc.reflection.v1.ServerReflection"
OLD_REFLECTION = "grpc.reflection.v1alpha.ServerReflection"
"""the same with another name"""


def _load() -> Any:
    pool = descriptor_pool.DescriptorPool()
    data = resources.files(__package__).joinpath("messages.binpb").read_bytes()
    for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        pool.Add(file)
    return pool


_pool = _load()


def service(name: str) -> Any:
    """Return the descriptor of a service: `INFERENCE`, `HEALTH` or `REFLECTION`."""
    return _pool.FindServiceByName(REFLECTION if name == OLD_REFLECTION else name)


def file(name: str) -> Any:
    """Return the descriptor of a file. Raises KeyError if there is none of this name."""
    return _pool.FindFileByName(name)


def file_of(symbol: str) -> Any:
    """Return the file that defines a service, a method, a message or a part of one; or KeyError."""
    parent, _, name = symbol.rpartition(".")
    with contextlib.suppress(KeyError):  # the pool finds no methods
        return _pool.FindServiceByName(parent).methods_by_name[name].containing_service.file
    return _pool.FindFileContainingSymbol(symbol)


def message(name: str) -> Any:
    """Return the class of a message by its full name."""
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(name))
