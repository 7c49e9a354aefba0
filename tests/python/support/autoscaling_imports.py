"""What tests use of benchmarks/autoscaling, which is in no package."""

import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
sys.path.append(str(BENCHMARKS))

from autoscaling import counted, manifests  # noqa: E402
from autoscaling.cluster import Cluster, Model  # noqa: E402
from autoscaling.controllers import (  # noqa: E402
    HorizontalPodAutoscaler,
    Look,
    Policy,
    Scaling,
    Target,
)
from autoscaling.pods import Pods, queue_reader  # noqa: E402
from autoscaling.simulate import KnowsLoad, simulate  # noqa: E402
from autoscaling.traces import bursts, diurnal, visits  # noqa: E402

__all__ = [
    "BENCHMARKS",
    "Cluster",
    "HorizontalPodAutoscaler",
    "KnowsLoad",
    "Look",
    "Model",
    "Pods",
    "Policy",
    "Scaling",
    "Target",
    "bursts",
    "counted",
    "diurnal",
    "manifests",
    "queue_reader",
    "simulate",
    "visits",
]
