"""Everything at a time: requests and streams of all kinds, in streamers with options at random.

``python mixed.py threads|processes SECONDS SEED`` runs one round after the other, each with another
streamer. In each, callers do what mixed_calls.py says, workers are killed, and the streamer is
closed. Every request must end once and as allowed, the counts of the engine must add up, and
nothing may be left. The last line is "ok".
"""

import contextlib
import gc
import logging
import os
import random
import signal
import sys
import threading
import time
from collections import Counter

import mixed_models as models
import residue
from mixed_calls import Calls
from residue import LONG, Residue
from tasks import children

from service_streamer import Streamer, ThreadedStreamer
from service_streamer._models.steps import sequence
from service_streamer._processes import slots
from service_streamer._streams import writer
from service_streamer._streams.hub import this_hub

OPTIONS = {  # of a streamer; one value of each is chosen at random
    "batch_size": [1, 4, 32],
    "policy": ["adaptive", "greedy", "window"],
    "max_latency": [0, 0.005],
    "max_queue": [None, None, 8],
    "overflow": ["block", "reject"],
    "ageing": [None, 0.01],
    "tenants": [None, {"one": 3, "*": 1}],
    "max_queue_per_tenant": [None, None, 4],
    "isolate_errors": [True, True, False],
    "isolation_budget": [0, 8],
}
GROUPING = {"key": models.key, "weight": models.weight}
BUCKETS = [{}, {"bucket": (1, 3)}]
CALLERS = 6
PATIENCE = 0.3  # s that a model waits for a reader that takes nothing
ENDED = ("completed", "failed", "cancelled", "expired", "dropped")


class Problems(logging.Handler):
    """Collects what is logged as an error, but for the deaths of workers."""

    def __init__(self):
        super().__init__(logging.ERROR)
        self.found = []

    def emit(self, record):
        if not hasattr(record, "worker_pid"):
            self.found.append(record.getMessage())


class Round:
    """One streamer from its begin to its end.

    Attributes:
        about: what was chosen.
        tally: how many requests ended in which way, and how many accidents there were.
    """

    def __init__(self, kind, processes, rng):
        self._rng = rng
        self._processes = processes
        options = {name: rng.choice(values) for name, values in OPTIONS.items()}
        steps = kind is models.Steps
        grouped = not steps and rng.random() < 0.5
        self._grouping = GROUPING | rng.choice(BUCKETS) if grouped else {}
        if grouped:
            options["max_weight"] = models.MAX_WEIGHT
        self.about = f"{kind.__name__} with {options}"
        options |= self._grouping
        self._model = kind if steps else kind(options["batch_size"], grouped)
        if processes:
            workers = rng.choice([1, 2, 3])
            self._streamer = Streamer(
                self._model,
                worker_num=workers,
                mp_start_method="fork",
                worker_hang_timeout=20,
                **options,
            )
        else:
            if steps:
                self._model = kind()
                self._model.init_model()
            self._streamer = ThreadedStreamer(self._model, **options)
        self._options = options
        self._calls = Calls(kind is not models.Function, processes, options)
        self.tally = self._calls.tally
        self._failures = []
        self._stop = threading.Event()

    def run(self, seconds):
        streamers = [self._streamer]
        if self._processes:
            client = Streamer.connect(self._streamer.address, **self._grouping)
            streamers.append(client)
        callers = [
            threading.Thread(
                target=self._call,
                args=(streamers[n % len(streamers)], random.Random(self._rng.random())),
                daemon=True,
            )
            for n in range(CALLERS)
        ]
        for caller in callers:
            caller.start()
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self._failures:
            self._do_harm() if self._processes else self._configure()
            self._stop.wait(self._rng.uniform(0, 0.3))
        ending = self._rng.choice(["rest", "drain", "drop", "abort"])
        if ending != "rest":
            self._end(streamers, ending)
        self._stop.set()
        for caller in callers:
            caller.join(LONG)
            self._check(not caller.is_alive(), "a caller hangs")
        self._read_kept()
        if ending == "rest":
            self._end(streamers, "drain")
        if self._failures:
            raise self._failures[0]
        for streamer in streamers:
            self._check_counts(streamer, ending)
        if not self._processes and isinstance(self._model, models.Steps) and ending != "abort":
            self._check(not self._model.live, f"{len(self._model.live)} states were not dropped")

    def _call(self, streamer, rng):
        try:
            while not self._stop.is_set():
                self._calls.one(streamer, rng)
                if self._calls.closing:
                    self._stop.wait(0.01)
        except BaseException as error:
            self._failures.append(error)
            self._stop.set()

    def _read_kept(self):
        try:
            self._calls.read_kept()
        except BaseException as error:
            self._failures.append(error)

    def _end(self, streamers, ending):
        """Close the streamers, while callers may call them."""
        self._calls.closing = True
        for streamer in reversed(streamers):
            streamer.close(drain=ending != "drop", timeout=0 if ending == "abort" else LONG)

    def _do_harm(self):
        """One accident."""
        kind = self._rng.choice(["kill", "kill", "stop", "resize", "restart", "fork", "configure"])
        if kind == "resize":
            self._streamer.resize(self._rng.choice([1, 2, 3]))
        elif kind == "configure":
            self._configure()
        elif kind == "restart":
            self._streamer.restart(timeout=LONG)
        elif kind == "fork":
            self._fork()
        else:
            ready = [w for w in self._streamer.stats().worker_processes if w.state == "ready"]
            if not ready:
                return
            pid = self._rng.choice(ready).pid
            with contextlib.suppress(ProcessLookupError):  # it has died meanwhile
                os.kill(pid, signal.SIGKILL if kind == "kill" else signal.SIGSTOP)
                self._stop.wait(0.02)
                os.kill(pid, signal.SIGCONT)
        self.tally[kind] += 1

    def _configure(self):
        names = ("policy", "max_latency")
        self._streamer.configure(**{name: self._rng.choice(OPTIONS[name]) for name in names})

    def _fork(self):
        """Let a forked child use the streamer, or connect to it; it may be killed in the middle."""
        seed = self._rng.random()
        connects = self._rng.random() < 0.5
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                options = {**self._options, "overflow": "reject"}
                calls = Calls(not isinstance(self._model, models.Function), True, options)
                rng = random.Random(seed)
                streamer = self._streamer
                if connects:
                    streamer = Streamer.connect(streamer.address, **self._grouping)
                for _ in range(5):
                    calls.one(streamer, rng)
                calls.read_kept()
                if connects:
                    streamer.close(timeout=LONG)
                status = 0
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                os._exit(status)
        if self._rng.random() < 0.5:
            self._stop.wait(0.02)
            os.kill(pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self._check(code in (0, -signal.SIGKILL), f"a forked child failed with {code}")

    def _check_counts(self, streamer, ending):
        counts = streamer._backend.engine.stats()
        ended = sum(counts[name] for name in ENDED)
        self._check(ended == counts["submitted"], f"{ended} of {counts['submitted']} have ended")
        left = ["queued_items", "queued_requests", "waiting_requests"]
        left += [] if ending == "abort" else ["running_items", "running_batches"]
        for name in left:
            self._check(counts[name] == 0, f"{name}: {counts[name]}")

    def _check(self, holds, what):
        if not holds:
            raise AssertionError(what)


def wait_for_rest(before):
    """Return what there is more of than before, if that does not change."""
    deadline = time.monotonic() + LONG
    pause = threading.Event()
    while True:
        gc.collect()
        now = Residue.of(os.getpid())
        more = now.growth(before or now, spare=0)
        more += [f"{len(children())} processes"] if children() else []
        more += ["open streams"] if this_hub()._inboxes else []
        if not more or time.monotonic() > deadline:
            return more, now
        pause.wait(0.05)


def main(kind, seconds, seed):
    slots.MAX_DELAY = 0.02  # or there would soon be no worker to kill
    writer.PATIENCE = sequence.PATIENCE = PATIENCE
    residue.BLOCKS = 256 + 64  # the most that a pool and a cache of mappings keep
    logging.getLogger("service_streamer").addHandler(problems := Problems())
    rng = random.Random(seed)
    tally = Counter()
    before = None
    until = time.monotonic() + seconds
    number = 0
    kinds = [models.Function, models.Generator, models.Steps]
    if kind == "threads":
        kinds.append(models.Iterators)  # `predict` cannot pickle them
    while time.monotonic() < until or number < 2 * len(kinds):
        one = Round(kinds[number % len(kinds)], kind == "processes", rng)
        print(f"{number}: {one.about}", flush=True)
        one.run(0.1 + rng.random() * min(2, seconds / 10))
        assert not problems.found, problems.found
        tally += one.tally
        del one  # of which nothing may be left
        more, now = wait_for_rest(before)
        assert not more, f"left: {', '.join(more)}: {now}; before: {before}"
        number += 1
        if number == len(kinds):  # what is made once is there
            before = now
    print(f"{number} rounds;", ", ".join(f"{n} {name}" for name, n in tally.most_common()))
    print(f"before: {before}; after: {now}")
    print("ok")


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
