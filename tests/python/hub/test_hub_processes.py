"""Models in worker processes."""

import os
import signal
import threading

import pytest
from process_models import echo
from waits import LONG

from service_streamer import ManagedModel, WorkerInitError
from service_streamer.hub import ModelLoadError, ModelSpec


class Pid(ManagedModel):
    def init_model(self, error=None):
        if error:
            raise ValueError(error)
        self.memory = bytearray(b"x" * 30_000_000)

    def predict(self, batch):
        return [os.getpid() for _ in batch]


@pytest.fixture
def spec():
    return ModelSpec(Pid, batch_size=8, mp_start_method="fork")


def test_a_managed_model_runs_in_a_process(hubs, spec):
    hub = hubs({"pid": spec}, max_loaded=1, memory_budget="10GB")
    (pid,) = hub.predict("pid", [1])
    assert pid != os.getpid()
    status = hub.status()["pid"].versions[1]
    assert status.memory > 25e6
    hub.unload("pid")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert hub.predict("pid", [1]) != [pid]


def test_a_model_that_cannot_be_loaded(hubs):
    options = {"mp_start_method": "fork", "model_init_kwargs": {"error": "no file"}}
    hub = hubs({"pid": ModelSpec(Pid, batch_size=8, **options)})
    with pytest.raises(ModelLoadError, match="no file") as caught:
        hub.predict("pid", [1])
    assert isinstance(caught.value.__cause__, WorkerInitError)
    assert isinstance(caught.value.__cause__.__cause__, ValueError)


def test_streams_of_a_model_that_is_not_loaded(hubs):
    options = {"mp_start_method": "fork", "processes": True}
    hub = hubs({"echo": ModelSpec(echo, batch_size=8, **options)})
    assert list(hub["echo"].stream(3)) == [3]


def test_a_forked_child_uses_what_is_loaded(hubs, spec, monkeypatch):
    hub = hubs({"pid": spec, "other": ModelSpec(echo, batch_size=8)})
    forked = threading.Event()
    forward = hub._loader._forward

    def forward_and_pause(*args):  # the model is loaded, and its first request goes to it
        forward(*args)
        forked.wait(LONG)

    monkeypatch.setattr(hub._loader, "_forward", forward_and_pause)
    expected = hub.predict("pid", [1])
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            assert hub.predict("pid", [1]) == expected
            with pytest.raises(ModelLoadError, match="a forked process loads none"):
                hub.predict("other", [1])
            with pytest.raises(ModelLoadError, match="a forked process loads none"):
                hub.load("other")
            os.write(write, b"ok")
        except BaseException as error:
            os.write(write, repr(error).encode())
        finally:
            os._exit(0)
    forked.set()
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        assert answer.read() == b"ok"
    os.waitpid(child, 0)
    assert hub.predict("other", [1]) == [1]
    assert signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL
