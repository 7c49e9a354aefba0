"""A supervisor whose server, processes and clock only pretend."""

import queue

from waits import LONG, eventually

from service_streamer._models.model import Model
from service_streamer._processes.start import ModelVersion, Started
from service_streamer._processes.supervisor import Supervisor

OLD, NEW = ModelVersion(Model("old"), b""), ModelVersion(Model("new"), b"")


class FakeProcess:
    """Ends when it is killed, or when the server lets it go."""

    def __init__(self, pid, index, worker_num, version):
        self.pid, self.index, self.worker_num, self.version = pid, index, worker_num, version
        self.ended = self.killed = False

    def kill(self):
        self.ended = self.killed = True

    def wait(self, timeout):
        return self.ended

    def describe(self):
        return "was killed by SIGSEGV"


class Fake:
    """Server, starter and clock of one supervisor."""

    def __init__(self, worker_num=1, version=OLD):
        self.now = 100.0
        self.started = []  # all processes, in their order; their index is the server's number
        self.retired = []
        self.failures = []  # the arguments of set_failure
        self.timeouts = []  # what next_event was given
        self.events = queue.Queue()
        self.broken = None  # an exception that starting a process raises
        self.waits = False  # it has come to its first event
        self.hears = True  # the server, which worker is to be retired, at once
        self.supervisor = Supervisor(self, self.start, version, worker_num, 8, lambda: self.now)

    # --- what the supervisor uses

    def start(self, index, worker_num, batch_size, version):
        if self.broken is not None:
            raise self.broken
        process = FakeProcess(1000 + len(self.started), index, worker_num, version)
        self.started.append(process)
        return Started(-1, process, b"setup")

    def add_worker(self, socket, pid, setup, place):
        return pid - 1000

    def retire_worker(self, worker):
        self.retired.append(worker)
        if self.hears:
            self.events.put(("retired", worker, "", False, False))

    def next_event(self, timeout):
        self.timeouts.append(timeout)
        if self.waits:
            self.events.task_done()  # what it was given before
        self.waits = True
        return self.events.get(timeout=LONG)

    def interrupt(self):
        self.events.put(None)

    def set_failure(self, note):
        self.failures.append(note)

    def stop(self):
        for process in self.started:
            process.ended = True

    # --- what a test does

    def event(self, kind, worker, text="", had_batch=False, hung=False):
        """Has an event handled, and what follows from it done."""
        self.events.put((kind, worker, text, had_batch, hung))
        self.settle()

    def ready(self, *workers):
        for worker in workers:
            self.event("ready", worker)

    def dies(self, worker, **details):
        self.started[worker].ended = True
        self.event("gone", worker, **details)

    def fails(self, worker, text="Traceback: no weights"):
        self.event("init_failed", worker, text)
        self.dies(worker)

    def passes(self, seconds):
        self.now += seconds
        self.interrupt()
        self.settle()

    def settle(self):
        eventually(lambda: self.waits and self.events.unfinished_tasks == 0)

    @property
    def running(self):
        """The places of the processes that run."""
        return [process.index for process in self.started if not process.ended]
