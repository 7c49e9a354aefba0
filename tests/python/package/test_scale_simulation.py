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
    """Of Redis."""
    from scale.costs import recorded

    return recorded("redis")


def is_reproduced(back_end, cell):
    """Tell whether the figures of decision 054 promise this cell."""
    if cell.fixed:
        return back_end == "redis" or cell.fixed == 0.005
    return cell.workers == 1 and cell.callers in (1, 128)


@pytest.mark.parametrize("back_end", ["redis", "ray"])
def test_the_measured_throughput_of_one_to_four_workers_is_reproduced(study, back_end):
    from scale.costs import recorded

    cells = [study.BY_NAME[name] for name in RECORDED["measured"][back_end]]
    cells = [cell for cell in cells if is_reproduced(back_end, cell)]
    assert {cell.workers for cell in cells if cell.fixed} == {1, 2, 3, 4}
    for cell in cells:
        measured = RECORDED["measured"][back_end][cell.name]["requests"]
        cores = RECORDED["machine"]["cores"]
        simulated = study.simulate_cell(cell, recorded(back_end), cores, seconds=0.5).per_s
        assert simulated == pytest.approx(measured, rel=0.15), cell.name


def test_the_same_seed_gives_the_same_figures(study, costs):
    sharded = study.WAYS[1]
    first, second = (study.at(sharded, costs, 10, 10_000) for _ in range(2))
    assert first == second


def test_a_load_beyond_the_limit_of_one_stream_is_carried_by_shards(study, costs):
    one, sharded = study.WAYS[:2]
    rate = 150_000
    assert study.at(one, costs, 100, rate).per_s < 0.9 * rate
    assert study.at(sharded, costs, 100, rate).per_s == pytest.approx(rate, rel=0.05)


def test_the_published_limits_are_in_their_order(study):
    (name,) = (name for name, model in study.MODELS.items() if model is study.USUAL)
    ray, one, sharded = (
        {number: rate for number, rate, _ in RECORDED["limits"][name][way]}
        for way in ("Ray, 1 owner", "Redis, 1 stream", "Redis, 8 shards")
    )
    assert len(sharded) == len(study.MACHINES)
    for number in sharded:
        assert ray[number] <= 1.15 * one[number] <= 1.15**2 * sharded[number]  # its step
