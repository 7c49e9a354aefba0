"""One run of ``tune``: the search, the second measurement, and what is left of both."""

from __future__ import annotations

import dataclasses
import os
import shlex
import signal
import sys
from typing import Any

from ..._placement.machine import cpu_count, usable_cores
from ..._statistics.formats import count, duration
from .. import logs
from ..options import CommandError
from . import output
from .process import TrialProcess
from .search.file import hash_of, write
from .search.front import Measured, measured, pareto_front
from .search.journal import JournalError, open_journal, remove_journal
from .search.rates import least_p99
from .search.search import Search
from .search.space import Space
from .search.trial import Trial
from .trial import Job, ModelNotFoundError

NOT_REACHED = 3  # the exit code if no settings keep the target
_AGAIN = 2  # times as long are the best measured again


class Tuning:
    """Searches, and writes what it has found.

    Args:
        job: what all trials have in common.
        path: where the options are written. The journal and the plot are beside it.
        trials: how many settings are tried.
        seed: of the search.
        most_items, most_workers: the largest batch_size and worker_num.
    """

    def __init__(
        self, job: Job, path: str, *, trials: int, seed: int, most_items: int, most_workers: int
    ) -> None:
        self._job = job
        self._path = path
        self._journal = f"{path}.journal"
        self._trials = trials
        self._seed = seed
        cores = usable_cores()
        self._space = Space.of_machine(
            cpu_count(),
            job.slo,
            most_items=most_items,
            most_workers=most_workers,
            has_native=job.native is not None,
            has_smt=any(len(core.cpus) > 1 for core in cores),
            has_nodes=len({core.node for core in cores}) > 1,
        )

    def run(self) -> int:
        """Return the exit code."""
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # it ends as after Ctrl-C
        try:
            with open_journal(self._journal) as storage:
                return self._run(storage)
        except (JournalError, ModelNotFoundError) as error:
            raise CommandError(str(error)) from None

    def _run(self, storage: Any) -> int:
        space = {k: list(v) for k, v in vars(self._space).items() if k != "cores"}
        search = Search(
            self._space,
            self._job.slo,
            trials=self._trials,
            seed=self._seed,
            storage=storage,
            about={
                **self._job.about(),
                "content of the sample": hash_of(self._job.sample),
                "space": space,
                "machine": output.machine(),
            },
            path=self._journal,
        )
        if search.trials:
            logs.say(f"going on after {count(len(search.trials), 'trial')}, see {self._journal}")

        def tell(trial: Trial) -> None:
            logs.say(f"trial {len(search.trials)} of {search.most}: {_result(trial)}")

        try:
            search.run(lambda settings: TrialProcess(self._job, settings), tell)
            if search.first_error is not None:
                logs.say(f"{_all(len(search.trials))} failed: {search.first_error}", error=True)
                remove_journal(self._journal)
                return 1
            job = dataclasses.replace(self._job, seconds=_AGAIN * self._job.seconds)
            again = search.run_again(lambda settings: TrialProcess(job, settings), _tell_again)
        except ModelNotFoundError:
            if not search.trials:
                remove_journal(self._journal)
            raise
        except KeyboardInterrupt:
            return self._interrupted(search)
        code = self._finished(search, again)
        if code == 0 or search.best is None:
            remove_journal(self._journal)
        else:  # a short disturbance of the machine should not cost all trials
            logs.say(
                f"the trials are kept: the same command measures the best again; remove "
                f"{self._journal} to begin again"
            )
        return code

    def _interrupted(self, search: Search) -> int:
        if (best := search.best) is not None:
            kept = [point for point in best.points if point.keeps(self._job.slo)]
            point = next(point for point in kept if point.load == best.rate)
            self._write(Measured(best.settings, point), len(search.trials))
        best_so_far = "" if best is None else f"{self._path} has the best so far; "
        logs.say(
            f"interrupted after {len(search.trials)} of {self._trials} trials: {best_so_far}the "
            f"same command goes on; remove {self._journal} to begin again"
        )
        return 130

    def _finished(self, search: Search, again: list[Trial]) -> int:
        slo = self._job.slo
        errors = [trial.error for trial in again if trial.error is not None]
        if errors and len(errors) == len(again):
            logs.say(f"the best trials failed the second time: {errors[0]}", error=True)
            return 1
        within = [one for one in measured(again) if one.point.keeps(slo)]
        if not within:
            output.print_front(pareto_front(measured(again or search.trials))[:1], None, slo)
            again_too = "" if search.best is None else " the second time"
            print(
                f"No settings keep a p99 of {duration(slo)}{again_too}: above is the lowest that "
                "was found."
            )
            return NOT_REACHED
        front = pareto_front(within)
        best = front[-1]
        first = [one for one in measured(search.trials) if not one.point.closed]
        output.print_front(front, best, slo)
        for line in output.remarks(best, first, self._space, slo):
            print(line)
        plot = f"{os.path.splitext(self._path)[0]}.svg"
        with open(plot, "w", encoding="utf-8") as file:
            file.write(output.picture(first, front, slo))
        self._write(best, len(search.trials))
        print(f"plot: {plot}")
        return 0

    def _write(self, best: Measured, trials: int) -> None:
        job = self._job
        about = {
            "model": job.model,
            "native": job.native,
            "sample": os.path.basename(job.sample),
            "slo_p99": job.slo,
            "trials": trials,
        }
        command = shlex.join(["service-streamer", *sys.argv[1:]])
        write(self._path, output.tuned(best, about, command))
        print(f"options: {self._path}")
        print(output.usage(best, job.native, self._path))


def _all(trials: int) -> str:
    return "the only trial" if trials == 1 else f"all {trials} trials"


def _tell_again(trial: Trial) -> None:
    logs.say(f"again: {_result(trial)}")


def _result(trial: Trial) -> str:
    if trial.error is not None:
        result = f"failed: {trial.error}"
    elif trial.hopeless:
        result = "ended early, cannot beat the best"
    elif trial.rate:
        result = f"{trial.rate:,.0f} requests/s"
    else:
        result = f"no rate kept the target, lowest p99 {duration(least_p99(trial.points))}"
    return f"{trial.settings}: {result}"
