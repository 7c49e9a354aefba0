"""What Triton tells of a model beyond the protocol: its statistics and its configuration.

The dictionaries are JSON of Triton, and what the messages of gRPC are made of.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .._base.errors import StreamerError
from ..extend import view_of
from ..hub import VersionView
from ._items import Specs
from ._requests import NAME

if TYPE_CHECKING:
    from .._base.options import Options


def statistics_of(version: VersionView) -> dict[str, Any] | None:
    """Return what the streamer of a version has counted since its load.

    Never blocks. What is not measured is 0. None: it is not loaded, or another process counts.
    """
    streamer = version.streamer
    if streamer is None:
        return None
    last_use = version.status().last_use or 0.0
    try:
        stats = view_of(streamer).stats(timeout=0)
    except StreamerError:  # another process has them
        return None
    failed = stats.failed + stats.expired + stats.rejected + stats.dropped
    return {
        "name": version.model_name,
        "version": str(version.number),
        "last_inference": round(1000 * last_use) if stats.submitted else 0,
        "inference_count": stats.items,
        "execution_count": stats.batches,
        "inference_stats": {
            "success": _total(stats.latency),
            "fail": _count(failed),
            "queue": _total(stats.queue_time),
            **_compute(_total(stats.service_time)),
            "cache_hit": _count(0),
            "cache_miss": _count(0),
        },
        "batch_stats": [
            {"batch_size": size, **_compute(_count(count))}
            for size, count in sorted(stats.batch_sizes.items())
        ],
    }


def configuration_of(
    name: str, inputs: Specs, outputs: Specs, options: Options, is_loaded: bool
) -> dict[str, Any]:
    """Return what is known of a model in the form of Triton's ``config.pbtxt``.

    Args:
        name: of the model.
        inputs, outputs: that it declares.
        options: of its streamer.
        is_loaded: the options are those of a streamer, and not what is known before there is one.
    """
    batching: dict[str, Any] = {}
    if is_loaded:
        batching["max_queue_delay_microseconds"] = round(options.max_latency * 1e6)
    return {
        "name": name,
        "platform": NAME,
        "backend": NAME,
        "max_batch_size": options.batch_size,
        "input": _tensors(inputs),
        "output": _tensors(outputs),
        "dynamic_batching": batching,
    }


def _compute(infer: Mapping[str, int]) -> dict[str, Mapping[str, int]]:
    """Return the times of batches. ``perf_analyzer`` ends if the counts of the three differ."""
    copies = _count(infer["count"])
    return {"compute_input": copies, "compute_infer": infer, "compute_output": copies}


def _count(count: int) -> Mapping[str, int]:
    return {"count": count, "ns": 0}


def _total(times: Any) -> Mapping[str, int]:
    return {"count": times.count, "ns": round(times.total * 1e9)}


def _tensors(specs: Specs) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "data_type": "TYPE_" + spec.datatype.replace("BYTES", "STRING"),
            "dims": list(spec.shape),
        }
        for name, spec in specs.items()
    ]
