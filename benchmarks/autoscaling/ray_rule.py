"""The rule by which a RayStreamer chooses the number of its replicas, as an autoscaler."""

from __future__ import annotations

from service_streamer._ray.replicas.scaling import Load, Scaling

from .controllers import Look

TICK = 0.25  # s between two decisions of a RayStreamer


class RayScaling:
    """``replicas=(least, most)``.

    Args:
        least, most: the limits.
        target: ``target_queue_time`` in seconds.
    """

    def __init__(self, least: int, most: int, target: float) -> None:
        self.due = 0.0
        self._scaling = Scaling(least, most, target)

    def decide(self, now: float, look: Look) -> int:
        self.due = now + TICK
        queue_time, full = look.metrics["queue_time"] or 0.0, look.metrics["full"] or 0.0
        batches = int(look.metrics["batches"] or 0)
        return self._scaling.decide(Load(now, queue_time, full, look.replicas, batches))
