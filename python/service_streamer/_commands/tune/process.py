"""Starts the process of a trial, and asks it for one load after the other."""

from __future__ import annotations

import dataclasses
import itertools
import json
import select
import signal
import subprocess
import sys
import tempfile
from typing import IO, Any, cast

from .search.rates import Point, TrialError
from .search.space import Settings
from .trial import LONGEST, Job, ModelNotFoundError

_SLACK = 30.0  # s beyond what a reply should take, on a busy machine
_END = 10.0  # s for the process to end by itself, after its workers
_SEEDS = itertools.count(1)


class TrialProcess:
    """The process of one trial: a `Load`, as a context manager.

    Args:
        job: what all trials have in common.
        settings: of this trial.

    Raises:
        TrialError: the settings do not run, or the process has died. On entering, or for a load.
        ModelNotFoundError: no settings can run. On entering.
    """

    def __init__(self, job: Job, settings: Settings) -> None:
        self._job = job
        self._settings = settings

    def __enter__(self) -> TrialProcess:
        self._log = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from {__package__}.trial import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            bufsize=0,
            start_new_session=True,  # Ctrl-C is for the command alone
        )
        self._stdin = cast("IO[bytes]", self._process.stdin)
        self._stdout = cast("IO[bytes]", self._process.stdout)
        try:
            job, settings = dataclasses.asdict(self._job), dataclasses.asdict(self._settings)
            expected = self._job.start_timeout + 2 * self._job.timeout  # it tries two requests
            answer = self._ask({"job": job, "settings": settings}, expected)
            if not answer.get("found", True):
                raise ModelNotFoundError(answer["error"])
            if "error" in answer:
                raise TrialError(answer["error"])
            self._seconds: float = answer["seconds"]
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._stdin.close()
        try:
            self._process.wait(_END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stdout.close()
        self._log.close()

    def closed(self) -> Point:
        """Measure with clients that send their next request when they have the answer."""
        return self._measure(None)

    def open(self, rate: float) -> Point:
        """Measure with requests that are due at random times, `rate` per second on average."""
        return self._measure(rate)

    def _measure(self, rate: float | None) -> Point:
        longest = LONGEST * self._seconds + self._job.slo
        return Point(**self._ask({"rate": rate, "seed": next(_SEEDS)}, 2 * longest))

    def _ask(self, question: Any, expected: float) -> dict[str, Any]:
        try:
            self._stdin.write(json.dumps(question).encode() + b"\n")
        except BrokenPipeError:
            raise self._death() from None
        readable, _, _ = select.select([self._stdout], [], [], expected + _SLACK)
        if not readable:
            raise TrialError(f"no answer within {expected + _SLACK:.0f} s")
        line = self._stdout.readline()  # it is written at once
        if not line:
            raise self._death()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _death(self) -> TrialError:
        """Return the error of a process that has died: how, and its last words."""
        code = self._process.wait()
        ended = f"ended with {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"
        self._log.seek(0)
        words = [line for line in self._log.read().splitlines() if line.strip()][-1:]
        return TrialError(": ".join([f"its process {ended}", *words]))
