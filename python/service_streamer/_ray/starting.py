"""Starts the owner of a RayStreamer, and finds that of another process."""

from __future__ import annotations

import dataclasses
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from .._base.errors import ClusterError, SerializationError
from .._base.messages import describe, see, short
from .._base.options import Options
from .._models.model import Model, guilty_part
from . import cluster
from .owner.actor import Owner
from .settings import RaySettings, check_name

CALLS = 10_000  # most calls of clients at a time


def start(model: Model, options: Options, settings: RaySettings) -> Any:
    """Start an owner, and return its handle. Does not wait for it.

    Raises:
        SerializationError: the model cannot be pickled.
        ValueError: another RayStreamer has the name.
    """
    packed = _packed(model)
    grouping = options.grouping
    plain = dataclasses.replace(
        options,
        grouping=None if grouping is None else grouping.of_traits(),
        output="items",
        coalesce=False,  # equal items are found in each client
        cache=None,
    )
    here = ray.get_runtime_context().get_node_id()
    maker = ray.remote(Owner).options(
        name=settings.name,
        namespace=cluster.NAMESPACE,
        num_cpus=0,
        max_restarts=-1,
        max_task_retries=0,
        max_concurrency=CALLS,
        runtime_env=settings.runtime_env,
        scheduling_strategy=NodeAffinitySchedulingStrategy(here, soft=False),
    )
    try:
        return maker.remote(packed, model.name, plain, options.output == "batch", settings)
    except ValueError as error:
        if settings.name is None:
            raise
        raise ValueError(
            f"name={settings.name!r} is in use by another RayStreamer of the cluster: choose "
            "another one, or use RayStreamer.connect"
        ) from error


def find(name: str) -> Any:
    """Return the handle of the owner with that name.

    Raises:
        ClusterError: there is none, or another version of this package has started it.
        ValueError: the name is no str.
    """
    check_name(name)
    try:
        return ray.get_actor(name, namespace=cluster.NAMESPACE)
    except ValueError as error:
        text = f"there is no RayStreamer with name={name!r} in the Ray cluster: start it first"
        named = ray.util.list_named_actors(all_namespaces=True)
        others = [each["namespace"] for each in named if each["name"] == name]
        if versions := [each for each in others if each.startswith(cluster.PACKAGE)]:
            text = (
                f"the RayStreamer with name={name!r} is of {' and '.join(sorted(versions))}, and "
                f"this process has {cluster.NAMESPACE}: install the same version"
            )
        raise ClusterError(see(text, "clustererror")) from error


def _packed(model: Model) -> bytes:
    try:
        return ray.cloudpickle.dumps(model)  # type: ignore[no-any-return]
    except Exception as error:
        guilty = guilty_part(model) or short(model.source)
        raise SerializationError(
            see(
                f"{model.name} cannot be sent to a replica, because {guilty} cannot be pickled "
                f"({describe(error)}): create what it refers to in `init_model` of "
                "a ManagedModel",
                "a-model-that-does-not-pickle",
            )
        ) from error
