"""Autoscalers with the parameters of the manifests in examples/redis."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from .controllers import (
    DOWN,
    UP,
    Fallback,
    HorizontalPodAutoscaler,
    Policy,
    ScaledObject,
    Scaling,
    Scraped,
    Target,
)

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "redis"
SCRAPE = 15.0  # s between two scrapes of the web pods; a Prometheus is set to less rather than more


def documents(name: str) -> list[dict[str, Any]]:
    """Return the documents of a manifest."""
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def scaled_object(**changes: Any) -> ScaledObject:
    """Return the autoscaler of keda.yaml.

    Args:
        **changes: other values for fields of its ``spec``; `target` for the ``streamLength`` of
            the main stream.
    """
    (document,) = documents("keda.yaml")
    spec = document["spec"]
    targets = {
        each["name"]: Target(float(each["metadata"]["streamLength"])) for each in spec["triggers"]
    }
    if (target := changes.pop("target", None)) is not None:
        targets["main"] = Target(target)
    spec |= changes
    behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    least, most = spec["minReplicaCount"], spec["maxReplicaCount"]
    hpa = HorizontalPodAutoscaler(targets, max(1, least), most, *_behavior(behavior))
    fallback = Fallback(spec["fallback"]["failureThreshold"], spec["fallback"]["replicas"])
    return ScaledObject(hpa, spec["pollingInterval"], spec["cooldownPeriod"], least, fallback)


def pod_autoscaler(**changes: Any) -> Scraped:
    """Return the autoscaler of hpa.yaml, which sees the queue through prometheus-adapter.yaml.

    Args:
        **changes: other values for fields of its ``spec``.
    """
    (document,) = documents("hpa.yaml")
    spec = document["spec"] | changes
    targets = {}
    for each in spec["metrics"]:
        name = "bulk" if "bulk" in each["external"]["metric"]["name"] else "main"
        targets[name] = Target(float(each["external"]["target"]["averageValue"]))
    hpa = HorizontalPodAutoscaler(
        targets, spec["minReplicas"], spec["maxReplicas"], *_behavior(spec["behavior"])
    )
    (adapter,) = documents("prometheus-adapter.yaml")
    query = adapter["rules"]["external"][0]["metricsQuery"]
    (window,) = set(re.findall(r"\[(\d+)s\]", query))
    return Scraped(hpa, SCRAPE, float(window))


def _behavior(behavior: Mapping[str, Any]) -> tuple[Scaling, Scaling]:
    return _scaling(behavior.get("scaleUp", {}), UP), _scaling(behavior.get("scaleDown", {}), DOWN)


def _scaling(rules: Mapping[str, Any], default: Scaling) -> Scaling:
    policies = tuple(
        Policy(each["type"], each["value"], each["periodSeconds"])
        for each in rules.get("policies", ())
    )
    window = rules.get("stabilizationWindowSeconds", default.window)
    return Scaling(window, policies or default.policies)
