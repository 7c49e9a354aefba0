"""Models that run in worker processes, and what a test can see of them.

Imported by spawned workers, so it is light and has no tests.
"""

import ctypes
import os
import pickle
import select
import signal
import struct
import threading
import time

from thread_models import double
from waits import LONG

from service_streamer import ManagedModel


def echo(batch):
    return batch


def double_after_a_while(batch):
    time.sleep(0.002)  # so that it is mostly met at work
    return double(batch)


class Journal:
    """What processes have written, in the order in which it came: a named pipe in a folder."""

    def __init__(self, folder, name="journal"):
        self._path = os.path.join(folder, name)
        os.mkfifo(self._path)
        self._fd = os.open(self._path, os.O_RDWR)  # so that no writer waits, or meets an end
        self.entries = []

    @classmethod
    def at(cls, folder, name="journal"):
        """The side that writes, of one that a test has made there."""
        journal = cls.__new__(cls)
        journal._path = os.path.join(folder, name)
        return journal

    def __getstate__(self):
        return {"_path": self._path}

    def append(self, entry):
        """Tell something; in any process."""
        message = pickle.dumps(entry)
        message = struct.pack("I", len(message)) + message
        assert len(message) <= select.PIPE_BUF, "it would not be written in one piece"
        fd = os.open(self._path, os.O_WRONLY)
        try:
            os.write(fd, message)
        finally:
            os.close(fd)

    def next(self, timeout=LONG):
        """Wait for the next entry."""
        assert self._readable(timeout), "nothing was written"
        (size,) = struct.unpack("I", os.read(self._fd, 4))
        self.entries.append(pickle.loads(os.read(self._fd, size)))
        return self.entries[-1]

    def all(self):
        """All that was written so far."""
        while self._readable(0):
            self.next()
        return self.entries

    def close(self):
        os.close(self._fd)

    def _readable(self, timeout):
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        return bool(poll.poll(timeout * 1000))


class ProcessGate:
    """`thread_models.Gate` for models in other processes.

    A named pipe is the gate: to open it for reading blocks until a process has it open for writing.
    """

    def __init__(self, folder, predict=double):
        self._predict = predict
        self._journal = Journal(folder, "gate-journal")
        self._path = os.path.join(folder, "gate")
        os.mkfifo(self._path)
        self._opener = None

    @classmethod
    def at(cls, folder):
        """The model's side of one that a test has made there."""
        gate = cls.__new__(cls)
        gate._predict = double
        gate._journal = Journal.at(folder, "gate-journal")
        gate._path = os.path.join(folder, "gate")
        return gate

    def __call__(self, batch):
        self._journal.append((os.getpid(), list(batch)))
        os.close(os.open(self._path, os.O_RDONLY))
        return self._predict(batch)

    def wait_entered(self):
        """Wait until one more batch is in the model; return the process."""
        return self._journal.next()[0]

    @property
    def batches(self):
        return [batch for _, batch in self._journal.all()]

    def open(self):
        if self._opener is None:
            self._opener = os.open(self._path, os.O_RDWR)

    def shut(self):
        if self._opener is not None:
            os.close(self._opener)
            self._opener = None

    def close(self):
        """When no caller comes any more."""
        self._journal.close()
        self.shut()


class PathGate(ManagedModel):
    """The gate in a folder."""

    def init_model(self, folder):
        self.model = ProcessGate.at(folder)

    def predict(self, batch):
        return self.model(batch)


class GatedSum:
    """Sums arrays when the gate is open."""

    def __init__(self, gate):
        self._gate = gate

    def __call__(self, batch):
        self._gate([array.shape for array in batch])
        return [float(array.sum()) for array in batch]


class Model(ManagedModel):
    """Answers with the arguments that it was made with, and where it runs."""

    def init_model(self, *args, **kwargs):
        self.model = (args, kwargs)

    def predict(self, batch):
        return [
            {
                "item": item,
                "args": self.model[0],
                "kwargs": self.model[1],
                "gpu_id": self.gpu_id,
                "pid": os.getpid(),
                "device": os.environ.get("CUDA_VISIBLE_DEVICES"),
                "threads": os.environ.get("OMP_NUM_THREADS"),
            }
            for item in batch
        ]


class Version(ManagedModel):
    """Answers with its version; slow to load."""

    def init_model(self, version, gate=None):
        self.model = version
        if gate is not None:
            gate(version)

    def predict(self, batch):
        return [self.model] * len(batch)


def die(how):
    """End this process in some way, or hold it."""
    if how == "exit":
        os._exit(7)
    if how == "segfault":
        ctypes.string_at(0)
    if how == "hang":
        while True:
            time.sleep(LONG)
    os.kill(os.getpid(), getattr(signal, how))


WAYS_TO_DIE = ["exit", "segfault", "SIGKILL", "SIGTERM", "SIGABRT"]


def deadly(batch):
    """Dies in the way that an item names."""
    for item in batch:
        if isinstance(item, str) and item.startswith("die:"):
            die(item.removeprefix("die:"))
    return batch


class BadInit(ManagedModel):
    def init_model(self, how):
        if how == "raise":
            raise LookupError("no weights here")
        if how == "sys.exit":
            raise SystemExit(9)
        if how == "exit slowly":
            os.closerange(3, 256)
            time.sleep(0.5)
            die("exit")
        die(how)

    def predict(self, batch):
        return batch


def first_time(folder):
    """Whether no process has asked before."""
    try:
        os.close(os.open(os.path.join(folder, "asked"), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


class Once(ManagedModel):
    """Fails to load the first time, when the gate is open."""

    def init_model(self, folder, how, gate):
        if not first_time(folder):
            return
        gate(["load"])
        if how == "raise":
            raise LookupError("not yet")
        die(how)

    def predict(self, batch):
        return batch


class HangsOnce(ManagedModel):
    """Holds its process with the first batch."""

    def init_model(self, folder, how, journal):
        self.model = (folder, how, journal)

    def predict(self, batch):
        folder, how, journal = self.model
        journal.append(os.getpid())
        if first_time(folder):
            die(how)
        return double(batch)


class Lingering(ManagedModel):
    """Fails to load the first time, and leaves a thread that keeps its process."""

    def init_model(self, folder, journal):
        if first_time(folder):
            journal.append(os.getpid())
            threading.Thread(target=signal.pause).start()
            raise LookupError("not yet")

    def predict(self, batch):
        return batch


def files_in_shared_memory():
    """List /dev/shm, but for semaphores: tests that run beside this one make and remove some."""
    return {name for name in os.listdir("/dev/shm") if not name.startswith("sem.")}


def is_alive(pid):
    """Whether a process runs: one that only waits to be asked for its exit code does not."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
