"""The search: how good it is in grids, how it goes on, and what becomes of failures."""

import contextlib
import json
import sys
from pathlib import Path

import pytest
from tune_shapes import SHAPES, shaped

from service_streamer._commands.tune.search.front import FINALISTS
from service_streamer._commands.tune.search.journal import JournalError, open_journal
from service_streamer._commands.tune.search.rates import TrialError
from service_streamer._commands.tune.search.search import GIVE_UP, Search
from service_streamer._commands.tune.search.space import NUMA, Space

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
RECORDED = BENCHMARKS / "results" / "tune.json"
GRIDS = {f"{name}, computed": shaped(name) for name in SHAPES}
if RECORDED.exists():  # `python -m tuning.quality grid` writes it
    GRIDS |= {f"{name}, measured": grid for name, grid in json.loads(RECORDED.read_text()).items()}
SEEDS = range(5)
SLO = 0.05
SPACE = Space.of_machine(4, SLO, most_items=64, most_workers=8, has_native=True)


@pytest.fixture(scope="module")
def replay():
    """The module that searches in recorded grids."""
    sys.path.insert(0, str(BENCHMARKS))
    from tuning import replay

    sys.path.remove(str(BENCHMARKS))
    return replay


@pytest.fixture
def start(replay):
    """Starts trials of a model with an optimum at batch_size=16 and worker_num=4."""

    class Start:
        def __init__(self):
            self.started = []
            self.fail = lambda settings: None
            self.rates = lambda settings: (
                1000 / (1 + abs(settings.batch_size - 16)) - (10 * abs(settings.worker_num - 4))
            )

        @contextlib.contextmanager
        def __call__(self, settings):
            self.started.append(settings)
            if reason := self.fail(settings):
                raise TrialError(reason)
            rate = max(0.0, self.rates(settings))
            yield replay.Replayed(replay.Measured(1000, rate, SLO + 1 / (1 + rate)), SLO)

    return Start()


@pytest.mark.parametrize("name", GRIDS)
def test_a_search_finds_the_best_of_a_grid_in_a_fifth_of_its_runs(replay, name):
    grid = replay.Grid(GRIDS[name])
    for seed in SEEDS:
        search = grid.search(seed)
        assert len(search.trials) + FINALISTS < 0.2 * len(grid.measured)
        assert grid.ratio(search) >= 0.95, f"seed {seed}: {search.best}"


def test_a_seed_gives_the_same_search_again(replay):
    grid = replay.Grid(GRIDS["sleep, computed"])
    assert grid.search(1).trials == grid.search(1).trials
    assert grid.search(1).trials != grid.search(2).trials


def test_no_settings_are_tried_twice_and_a_small_space_is_tried_to_its_end(start):
    space = Space(
        batch_size=[1, 2],
        worker_num=[1, 2],
        threads_per_worker=[1],
        max_latency=[0.01, 0.02],
        cores=1,
    )
    search = Search(space, SLO, trials=100)
    search.run(start)
    assert len(start.started) == len(set(start.started)) == len(space.grid()) == 20


def test_settings_that_mean_the_same_are_one():
    for settings in SPACE.grid():
        assert settings.worker_num * settings.threads_per_worker <= 2 * SPACE.cores
        assert (settings.max_latency is None) == (settings.policy == "greedy")


@pytest.mark.parametrize(
    ("machine", "rules"),
    [
        ({}, (None, "auto")),
        ({"has_smt": True}, (None, "auto", "no_smt")),
        ({"has_nodes": True}, (None, "auto", NUMA)),
        ({"has_smt": True, "has_nodes": True}, (None, "auto", "no_smt", NUMA)),
    ],
)
def test_workers_are_bound_in_the_ways_that_differ_on_the_machine(machine, rules):
    space = Space.of_machine(4, SLO, most_items=64, most_workers=8, **machine)
    assert space.affinity == rules


def test_a_search_begins_with_the_ways_to_divide_the_cores(start):
    space = Space.of_machine(6, SLO, most_items=256, most_workers=12)
    Search(space, SLO, trials=6).run(start)
    ways = [(each.worker_num, each.threads_per_worker) for each in start.started]
    assert ways == [(1, 6), (6, 1), (12, 1)] * 2
    assert [each.batch_size for each in start.started] == [16] * 3 + [128] * 3


def test_an_interrupted_search_goes_on_where_it_was(start, tmp_path):
    path = str(tmp_path / "journal")

    def interrupted(trial):
        if len(start.started) == 7:
            raise KeyboardInterrupt

    with open_journal(path) as storage, pytest.raises(KeyboardInterrupt):
        Search(SPACE, SLO, trials=12, storage=storage).run(start, interrupted)
    with open_journal(path) as storage:
        search = Search(SPACE, SLO, trials=12, storage=storage)
        assert [trial.settings for trial in search.trials] == start.started
        search.run(start)
    assert len(start.started) == len(set(start.started)) == 12
    assert search.best.rate == max(trial.rate for trial in search.trials)


def test_a_trial_whose_search_was_killed_is_not_counted(start, tmp_path):
    path = str(tmp_path / "journal")
    with open_journal(path) as storage, pytest.raises(SystemExit):
        Search(SPACE, SLO, trials=12, storage=storage).run(killed_after(start, 3))
    with open(path, "ab") as file:
        file.write(b'{"op_code": 4, "wor')  # a line that was not written to its end
    with open_journal(path) as storage:
        search = Search(SPACE, SLO, trials=5, storage=storage)
        assert len(search.trials) == 3
        search.run(start)
    assert len(search.trials) == 5


def killed_after(start, trials):
    """Starts trials, and ends as if killed while the next one runs."""

    @contextlib.contextmanager
    def begin(settings):
        if len(start.started) == trials:
            raise SystemExit
        with start(settings) as load:
            yield load

    return begin


def test_the_file_of_another_search_is_refused(start, tmp_path):
    path = str(tmp_path / "journal")
    with open_journal(path) as storage:
        Search(SPACE, SLO, trials=1, storage=storage, about={"slo": 0.05}, path=path)
        with pytest.raises(JournalError, match=r"slo=0.05, not 0.02: remove it to begin again"):
            Search(SPACE, SLO, trials=1, storage=storage, about={"slo": 0.02}, path=path)


def test_a_file_is_of_one_search_at_a_time(tmp_path):
    path = str(tmp_path / "journal")
    with (
        open_journal(path),
        pytest.raises(JournalError, match="another search writes"),
        open_journal(path),
    ):
        pass


def test_a_file_that_is_no_journal_is_refused_and_kept(tmp_path):
    path = tmp_path / "journal"
    path.write_text("my thesis\n")
    with pytest.raises(JournalError, match="is not the file of a search"), open_journal(str(path)):
        pass
    assert path.read_text() == "my thesis\n"


def test_a_failed_trial_has_its_reason_and_the_search_goes_on(start):
    start.fail = lambda settings: "too large" if settings.batch_size > 8 else None
    search = Search(SPACE, SLO, trials=20)
    search.run(start)
    failed = [trial for trial in search.trials if trial.error]
    assert len(search.trials) == 20
    assert failed
    assert {trial.error for trial in failed} == {"too large"}
    assert search.best.settings.batch_size <= 8
    assert search.first_error is None


def test_a_search_whose_trials_all_fail_gives_up(start):
    start.fail = lambda settings: f"reason {len(start.started)}"
    search = Search(SPACE, SLO, trials=20)
    search.run(start)
    assert len(search.trials) == GIVE_UP
    assert search.first_error == "reason 1"
    assert search.best is None


def test_a_search_for_a_target_that_nothing_reaches_comes_nearer(start):
    best = start.rates
    start.rates = lambda settings: 0.0

    @contextlib.contextmanager
    def begin(settings):
        with start(settings) as load:
            load.measured = type(load.measured)(1000, 0.0, 10 * SLO - 1e-4 * best(settings))
            yield load

    search = Search(SPACE, SLO, trials=40)
    search.run(begin)
    assert search.best is None
    nearest = min(search.trials, key=lambda trial: min(point.p99 for point in trial.points))
    assert nearest.settings.batch_size == 16


def test_the_best_are_measured_again(start):
    search = Search(SPACE, SLO, trials=15)
    search.run(start)
    again = search.run_again(start)
    assert start.started[15:] == [trial.settings for trial in again]
    assert len(again) <= FINALISTS
    assert again[0].settings == search.best.settings
    assert again[0].rate == search.best.rate


def test_trials_that_ended_early_for_a_small_difference_are_measured_again(start):
    start.rates = lambda settings: 900.0
    search = Search(SPACE, SLO, trials=15)
    search.run(start)
    assert sum(trial.hopeless for trial in search.trials) == 14
    assert len(search.run_again(start)) > 1


def test_a_trial_that_fails_the_second_time_is_left_out(start):
    search = Search(SPACE, SLO, trials=15)
    search.run(start)
    start.fail = lambda settings: "no memory" if settings == search.best.settings else None
    again = search.run_again(start)
    assert [trial.error for trial in again if trial.error] == ["no memory"]
    assert any(trial.rate for trial in again)
