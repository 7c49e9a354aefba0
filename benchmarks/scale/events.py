"""The event loop of the simulation, and threads that compete for cores."""

from __future__ import annotations

import collections
import heapq
import itertools
import math
from collections.abc import Callable
from typing import Any

Job = tuple[float, Callable[..., None], tuple[Any, ...]]
"""seconds of a core, what to call then, and its arguments"""


class Loop:
    """Calls functions in the order of their times. Those of the same time run as they were added.

    Attributes:
        now: seconds since the start.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = itertools.count()

    def after(self, delay: float, call: Callable[..., None], *arguments: Any) -> None:
        """Call a function `delay` seconds from now."""
        heapq.heappush(self._heap, (self.now + delay, next(self._number), call, arguments))

    def run(self, until: float) -> None:
        """Call all functions up to a time."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.now, _, call, arguments = heapq.heappop(heap)
            call(*arguments)
        self.now = until


class Cores:
    """The cores of a machine: first come, first served. A thread keeps its core while it has jobs.

    Args:
        loop: of the simulation.
        number: of cores. By default there is one for each thread.
    """

    def __init__(self, loop: Loop, number: float = math.inf) -> None:
        self._loop = loop
        self._free = number
        self._waiting: collections.deque[Thread] = collections.deque()

    def start(self, thread: Thread) -> None:
        """Run the jobs of a thread as soon as a core is free."""
        if self._free > 0:
            self._free -= 1
            self._run(thread)
        else:
            self._waiting.append(thread)

    def _run(self, thread: Thread) -> None:
        self._loop.after(thread.jobs[0][0], self._end, thread)

    def _end(self, thread: Thread) -> None:
        seconds, call, arguments = thread.jobs[0]
        thread.busy += seconds
        call(*arguments)
        thread.jobs.popleft()  # not before: so jobs that are added meanwhile do not start it again
        if thread.jobs:
            self._run(thread)
        elif self._waiting:
            self._run(self._waiting.popleft())
        else:
            self._free += 1


class Thread:
    """Does one job at a time, each on a core: a Redis server, or a process behind its GIL.

    Attributes:
        busy: seconds of a core that it has used.
        jobs: those that are left; the first one is being done, or waits for a core.
    """

    def __init__(self, cores: Cores) -> None:
        self.busy = 0.0
        self.jobs: collections.deque[Job] = collections.deque()
        self._cores = cores

    def run(self, seconds: float, call: Callable[..., None], *arguments: Any) -> None:
        """Call a function after `seconds` of a core, and after all earlier jobs."""
        self.jobs.append((seconds, call, arguments))
        if len(self.jobs) == 1:
            self._cores.start(self)
