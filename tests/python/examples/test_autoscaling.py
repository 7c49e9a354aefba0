"""The rules that scale workers by their queue: what they do, and what comes of it in a simulation.

The parameters are those of the manifests in examples/redis.
"""

import itertools

import pytest

pytest.importorskip("yaml")
pytest.importorskip("numpy")

from autoscaling_imports import (
    Cluster,
    HorizontalPodAutoscaler,
    KnowsLoad,
    Look,
    Model,
    Policy,
    Scaling,
    Target,
    bursts,
    diurnal,
    manifests,
    simulate,
    visits,
)

LARGE = Model(
    "0.2 s and 15 ms for each item",
    [0.0, *(0.2 + 0.015 * n for n in range(1, 65))],
    start=30.0,
    slo=2.5,
    timeout=10.0,
)


def look(replicas, **metrics):
    return Look(replicas, {"main": 0, "bulk": 0} | metrics)


def times(autoscaler, *looks):
    """What it decides at each of its looks."""
    decided = []
    for each in looks:
        decided.append(autoscaler.decide(autoscaler.due, each))
    return decided


# --------------------------------------------------- the algorithm of Kubernetes


ALL = Policy("Percent", 1000, 15)


def hpa(*, window=0.0, up=(ALL,)):
    targets = {"main": Target(100), "bulk": Target(1000)}
    return HorizontalPodAutoscaler(targets, 1, 20, Scaling(0, up), Scaling(window, (ALL,)))


@pytest.mark.parametrize(
    ("replicas", "metrics", "expected"),
    [
        (4, {"main": 401}, 4),  # within the tolerance of 0.1
        (4, {"main": 441}, 5),
        (4, {"main": 301}, 4),
        (4, {"main": 300}, 3),
        (4, {"main": 800, "bulk": 20_000}, 20),  # the larger proposal
        (4, {"main": 10_000}, 20),  # maxReplicas
        (4, {"main": 0}, 1),  # minReplicas
        (4, {"main": None, "bulk": 1000}, 4),  # a missing metric: not down
        (4, {"main": None, "bulk": 8000}, 8),  # but up
        (4, {"main": None, "bulk": None}, 4),
        (0, {"main": 800}, 0),  # switched off
    ],
)
def test_the_number_of_pods_follows_from_a_metric(replicas, metrics, expected):
    assert hpa().decide(0, look(replicas, **metrics)) == expected


def test_pods_end_only_when_the_whole_window_agrees():
    rule = hpa(window=60)
    assert times(rule, look(4, main=400), *[look(4, main=100)] * 4) == [4, 4, 4, 4, 1]


def test_growth_is_limited_to_the_policy_that_allows_more():
    rule = hpa(up=(Policy("Percent", 100, 30), Policy("Pods", 2, 30)))
    assert times(rule, look(1, main=9999), look(3, main=9999), look(3, main=9999)) == [3, 3, 6]


# ------------------------------------------------------------- the ScaledObject


def test_a_request_starts_a_worker_and_the_last_one_ends_after_the_cooldown():
    rule = manifests.scaled_object()
    assert rule.decide(0, look(0)) == 0
    assert rule.due == rule.polling
    assert rule.decide(5, look(0, bulk=1)) == 1
    assert rule.decide(10, look(1, main=1)) == 1
    for now in range(15, 310, 5):
        assert rule.decide(now, look(1)) == 1
    assert rule.decide(10 + rule.cooldown + 5, look(1)) == 0


def test_no_worker_ends_while_the_queue_cannot_be_read_and_some_are_started():
    rule = manifests.scaled_object()
    unknown = {"main": None, "bulk": None}
    failures, enough = rule.fallback.failures, rule.fallback.replicas
    assert times(rule, *[look(0, **unknown)] * failures) == [0] * failures
    assert max(times(rule, *[look(0, **unknown)] * 3)) == enough
    assert times(rule, *[look(5, **unknown)] * 200) == [5] * 200
    assert times(rule, look(0)) == [0]


# --------------------------------------------------------------- the simulation


def test_a_pod_answers_in_order_and_in_full_batches():
    model = Model("1 s", [0.0, *[1.0] * 4], start=5, slo=3, timeout=10)
    cluster = Cluster(model, [0.0] * 6, [0.0] * 3, pods=1)
    cluster.run(10)
    assert cluster.latencies().tolist() == [1.0] * 4 + [2.0] * 2
    assert cluster.bulk_answered == 3.0


def test_a_pod_that_starts_answers_nothing_and_one_that_ends_answers_its_batch():
    model = Model("1 s", [0.0, 1.0], start=5, slo=3, timeout=100)
    cluster = Cluster(model, [0.0, 0.1, 0.2, 0.3], pods=1)
    cluster.scale(0.5, 2)
    assert cluster.look(2.5).metrics["main"] == 2
    cluster.scale(2.6, 0)
    cluster.run(20)
    assert len(cluster.latencies()) == 3
    assert [round(pod.ended, 1) for pod in cluster.gone] == [2.6, 3.0]


def test_a_request_that_waits_too_long_is_given_up():
    cluster = Cluster(Model("1 s", [0.0, 1.0], 5, 3, timeout=2), [0.0, 0.0, 0.0, 0.0], pods=1)
    cluster.run(20)
    assert (len(cluster.latencies()), cluster.expired) == (3, 1)


# ---------------------------------------------------------------------- traces

RULES = {"keda.yaml": manifests.scaled_object, "hpa.yaml": manifests.pod_autoscaler}


@pytest.mark.parametrize("file", RULES)
def test_a_day_of_load_is_answered_in_time_by_few_workers(file):
    outcome = simulate(diurnal(2, hours=2, noon=4), LARGE, RULES[file]())
    assert outcome.in_time >= 0.995
    assert outcome.use <= 1.65  # rounding up, a reserve, and the window before a worker ends


@pytest.mark.parametrize("file", RULES)
def test_more_of_a_burst_is_in_time_than_if_the_load_of_the_moment_were_known(file):
    """Its begin is late in any case, because workers need time to start."""
    trace = bursts(2, hours=2)
    outcome = simulate(trace, LARGE, RULES[file]())
    assert outcome.in_time > simulate(trace, LARGE, KnowsLoad(trace, LARGE)).in_time + 0.05
    assert outcome.in_time >= 0.85
    assert outcome.use <= 2.2


def test_a_burst_is_in_time_with_workers_in_reserve():
    rule = manifests.scaled_object(minReplicaCount=3)
    assert simulate(bursts(2, hours=2), LARGE, rule).in_time >= 0.94


def test_workers_come_from_zero_and_go_again():
    outcome = simulate(visits(4, hours=2), LARGE, manifests.scaled_object(), pods=0)
    counts = [count for _, count, _ in outcome.timeline]
    starts = [a == 0 < b for a, b in itertools.pairwise(counts)]
    assert sum(starts) >= 2
    assert counts.count(0) > len(counts) / 5
    assert outcome.in_time >= 0.8
    # 20 minutes of bulk work for one worker, by more of them
    assert outcome.bulk < 600


def test_the_replicas_of_a_ray_streamer_follow_a_day_of_load():
    pytest.importorskip("service_streamer._ray.replicas.scaling")
    from autoscaling.ray_rule import RayScaling

    outcome = simulate(diurnal(2, hours=2, noon=4), LARGE, RayScaling(1, 8, LARGE.slo / 8))
    assert outcome.in_time >= 0.995
