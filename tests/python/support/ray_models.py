"""Models of the tests over Ray. Imported by replicas, so it is light."""

import os
import pathlib
import threading
import time

from service_streamer import ManagedModel


class Broken:
    """An item, or an output, that cannot be unpickled."""

    def __reduce__(self):
        return _refuse, ()


def _refuse():
    raise LookupError("it does not unpickle")


class Unpicklable:
    def __init__(self):
        self.lock = threading.Lock()


class Various(ManagedModel):
    """Doubles numbers; returns facts of arrays, its batch and its thread; raises for "bad"."""

    def init_model(self, factor=2):
        self.factor = factor
        self.loaded_by = threading.get_ident()

    def predict(self, batch):
        return [self._one(item, batch) for item in batch]

    def _one(self, item, batch):
        if isinstance(item, str):
            return self._told(item, batch)
        if hasattr(item, "flags"):
            return self.factor * item if item.flags.writeable is False else "a copy was made"
        return self.factor * item

    def _told(self, item, batch):
        if item == "bad":
            raise KeyError("a bad item")
        if item == "returned":
            return KeyError("a returned error")
        if item == "unpicklable":
            return Unpicklable()
        if item == "thread":
            return threading.get_ident() == self.loaded_by
        if item == "batch":
            return [type(each).__name__ for each in batch]
        return os.getpid()


def double_slowly(batch):
    time.sleep(0.002)  # so that it is mostly met at work
    return [2 * item for item in batch]


class Mortal(ManagedModel):
    """Doubles numbers; for "handle" it returns the handle of its replica.

    Args:
        folder: where it notes the pid of its process before it loads.
    """

    def init_model(self, folder):
        (pathlib.Path(folder) / str(os.getpid())).touch()
        time.sleep(0.1)  # so that it is also met while it loads

    def predict(self, batch):
        import ray

        time.sleep(0.002)  # so that it is mostly met at work
        handle = ray.get_runtime_context().current_actor
        return [handle if isinstance(item, str) else 2 * item for item in batch]


class Creator:
    """An actor that has a streamer."""

    def __init__(self, folder, name):
        from service_streamer import RayStreamer

        self._streamer = RayStreamer(HeldBy(folder), 8, name=name, num_cpus=0.01)

    def wait_ready(self, timeout):
        self._streamer.wait_ready(timeout)


def die_of_that(batch):
    if "die" in batch:
        os._exit(1)
    return batch


class HeldBy:
    """Waits, with each batch that has "hold", until a file is there; notes that it waits."""

    def __init__(self, folder):
        self._folder = pathlib.Path(folder)

    def __call__(self, batch):
        if "hold" in batch:
            (self._folder / "holds").touch()
            while not (self._folder / "go").exists():
                time.sleep(0.005)
        return batch


class Unloadable(ManagedModel):
    def init_model(self):
        raise OSError("there are no weights")

    def predict(self, batch):
        return batch


def room_for_four(batch):
    """Has memory for four items, and says so as torch does for CUDA."""
    if len(batch) > 4:
        raise RuntimeError("CUDA error: out of memory")
    return batch
