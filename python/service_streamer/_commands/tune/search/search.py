"""The search: which settings are tried, in which order, and what was found.

A Tree-structured Parzen Estimator (optuna's TPE) proposes settings. Its objective is the largest
rate that keeps the target. Settings that keep it at no rate are infeasible, by how much they miss
it. A trial that ended early counts by what it seemed capable of.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import optuna
from optuna.trial import TrialState

from .front import finalists
from .journal import check_same_search
from .rates import Load, TrialError, find_rate, least_p99, measure_again
from .space import Settings, Space
from .trial import Trial

GIVE_UP = 5  # failed trials, if no other has succeeded
_ATTEMPTS = 20  # proposals that were tried already, until settings are drawn at random
_FAILED = 1e9  # how much a failed trial misses the target: more than all others
_SILENT = 1e6  # the same, if no rate gave a p99

Start = Callable[[Settings], AbstractContextManager[Load]]
"""starts a trial; it raises `TrialError` if the settings do not run"""


class Search:
    """Tries settings. Each trial is kept in the storage when it ends.

    Args:
        space: the settings.
        slo: the target of the p99, in seconds.
        trials: how many are tried, those of an interrupted search included.
        seed: of the proposals.
        storage: of optuna; None: in memory.
        about: what an interrupted search must have in common with this one.
        path: of the storage, for messages.

    Raises:
        JournalError: the storage is of another search.
    """

    def __init__(
        self,
        space: Space,
        slo: float,
        *,
        trials: int,
        seed: int = 0,
        storage: Any = None,
        about: Mapping[str, Any] | None = None,
        path: str = "",
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._space = space
        self._slo = slo
        self.most = trials
        self._study = optuna.create_study(
            storage=storage, study_name="tune", direction="maximize", load_if_exists=True
        )
        check_same_search(self._study, about or {}, path)
        kept = self._study.get_trials(deepcopy=False)
        for each in kept:
            if each.state == TrialState.RUNNING:  # its process was killed
                self._study.tell(each.number, state=TrialState.FAIL)
        self.trials = [Trial.from_dict(t.user_attrs["trial"]) for t in kept if t.user_attrs]
        self._tried = {trial.settings for trial in self.trials}
        # One that goes on must not draw again what it has drawn before.
        guesses = space.guesses()
        self._study.sampler = optuna.samplers.TPESampler(
            n_startup_trials=len(guesses), multivariate=True, seed=seed + len(kept)
        )
        if not kept:
            for guess in guesses:
                self._study.enqueue_trial(guess, skip_if_exists=True)

    @property
    def best(self) -> Trial | None:
        """The trial with the largest rate that keeps the target."""
        kept = [trial for trial in self.trials if trial.rate]
        return max(kept, key=lambda trial: trial.rate, default=None)

    @property
    def first_error(self) -> str | None:
        """Why the first trial failed, if all have failed."""
        if any(trial.error is None for trial in self.trials):
            return None
        return next((trial.error for trial in self.trials), None)

    def run(self, start: Start, tell: Callable[[Trial], None] = lambda trial: None) -> None:
        """Try settings until there were enough trials, or no settings are left.

        It also ends after `GIVE_UP` trials that have all failed.

        Args:
            start: starts a trial.
            tell: called with each trial that has ended.
        """
        while len(self.trials) < self.most:
            if len(self.trials) >= GIVE_UP and self.first_error is not None:
                return
            asked = self._propose()
            if asked is None:
                return
            trial = self._try(*asked, start)
            self.trials.append(trial)
            tell(trial)

    def run_again(
        self, start: Start, tell: Callable[[Trial], None] = lambda trial: None
    ) -> list[Trial]:
        """Measure the best again, and return what they have shown.

        The largest of many noisy figures is too good on average. Those of a second measurement are
        not.

        Args:
            start: starts a trial, as for `run`.
            tell: called with each trial that has ended.
        """
        done = []
        for each in finalists(self.trials, self._slo):
            try:
                with start(each.settings) as load:
                    points = measure_again(load, each.estimate)
            except TrialError as error:
                trial = Trial(each.settings, error=str(error))
            else:
                kept = [point.load for point in points if point.keeps(self._slo)]
                rate = max(kept, default=0.0)
                trial = Trial(each.settings, tuple(points), rate, rate)
            done.append(trial)
            tell(trial)
        return done

    def _propose(self) -> tuple[Any, Settings] | None:
        """Return a trial with settings that were not tried. None: there are no more."""
        for _ in range(_ATTEMPTS):
            asked, settings = self._ask()
            if settings not in self._tried:
                return asked, settings
            self._study.tell(asked, state=TrialState.FAIL)  # the estimator does not see it
        grid = self._space.grid()
        left = [indices for settings, indices in grid.items() if settings not in self._tried]
        if not left:
            return None
        self._study.enqueue_trial(random.Random(len(self.trials)).choice(left))
        return self._ask()

    def _ask(self) -> tuple[Any, Settings]:
        asked = self._study.ask()
        indices = {}
        for name, count, has_order in self._space.parameters():
            if has_order:
                indices[name] = asked.suggest_int(name, 0, count - 1)
            else:
                indices[name] = asked.suggest_categorical(name, range(count))
        return asked, self._space.settings(indices)

    def _try(self, asked: Any, settings: Settings, start: Start) -> Trial:
        """Run a trial, and tell the estimator and the journal."""
        self._tried.add(settings)
        best = self.best
        try:
            with start(settings) as load:
                found = find_rate(load, self._slo, best.rate if best else 0.0)
        except TrialError as error:
            trial = Trial(settings, error=str(error))
            asked.set_constraint("p99", _FAILED)
        else:
            estimate = found.estimate(best.rate / best.points[0].throughput if best else 1.0)
            trial = Trial(settings, tuple(found.points), found.rate, estimate, found.hopeless)
            if not found.rate and not found.hopeless:
                missed = least_p99(found.points) / self._slo - 1
                asked.set_constraint("p99", missed if math.isfinite(missed) else _SILENT)
        asked.set_user_attr("trial", trial.as_dict())
        self._study.tell(asked, trial.estimate)
        return trial
