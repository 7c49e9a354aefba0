"""The simulation of many machines: it says what was measured on one, and what is published."""

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("redis")

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
RECORDED = json.loads((BENCHMARKS / "results" / "scale.json").read_text())


@pytest.fixture(scope="module")
def study():
    """The module, whose folder is not on the path."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        from scale import study
    finally:
        sys.path.remove(str(BENCHMARKS))
    return study


@pytest.fixture(scope="module")
def costs(study):
    from scale.costs import recorded

    return recorded("redis")


def test_the_measured_throughput_of_one_to_four_workers_is_reproduced(study, costs):
    cores = RECORDED["machine"]["cores"]
    cells = [cell for cell in study.CELLS if cell.is_reproduced]
    assert {cell.workers for cell in cells if cell.fixed} == {1, 2, 3, 4}
    for cell in cells:
        measured = RECORDED["measured"][cell.name]["requests"]
        simulated = study.simulate_cell(cell, costs, cores, seconds=0.5).per_s
        assert simulated == pytest.approx(measured, rel=0.15), cell.name


def test_what_the_bench_has_measured_on_a_ray_cluster_is_compared_too(study, monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    from plan import CASES
    from scale.costs import recorded

    assert study.RAY_CELLS.keys() <= {case.name for case in CASES}
    measured = {
        name: {"ours": {"per_s": 700.0, "p50_ms": 1.5}} for name in ("ray-noop-1", "ray-arrays-1")
    }
    (row,) = study.compare_ray(measured, recorded("ray"), 2)
    assert row["cell"] == "Ray, no-op, 1 worker, 1 \u00d7 1 callers"
    assert (row["measured_per_s"], row["measured_p50_ms"]) == (700.0, 1.5)
    assert row["simulated_per_s"] == pytest.approx(1e3 / row["simulated_p50_ms"], rel=0.1)


def test_the_same_seed_gives_the_same_figures(study, costs):
    sharded = study.WAYS[1]
    first, second = (study.at(sharded, costs, 10, 10_000) for _ in range(2))
    assert first == second


def test_a_load_beyond_the_limit_of_one_stream_is_carried_by_shards(study, costs):
    one, sharded = study.WAYS[:2]
    rate = 150_000
    assert study.at(one, costs, 100, rate).per_s < 0.9 * rate
    assert study.at(sharded, costs, 100, rate).per_s == pytest.approx(rate, rel=0.05)


def test_the_published_limits_are_in_their_order():
    for of_model in RECORDED["limits"].values():
        ray, one, sharded = (
            {number: rate for number, rate, _ in of_model[way]}
            for way in ("Ray, 1 owner", "Redis, 1 stream", "Redis, 8 shards")
        )
        assert len(sharded) >= 4
        for number in sharded:
            assert ray[number] <= 1.15 * one[number] <= 1.15**2 * sharded[number]  # its step
