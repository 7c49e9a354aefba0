"""How BatchedModel copies batches to a GPU: the order of its calls, logged by a fake torch."""

import contextlib
import sys
import types

import pytest

from service_streamer.torch._placement import Placement, wait_until_computed

pytest_plugins = ["batched_fixtures"]


class Gpu:
    """A fake of the torch functions for a GPU. `log` has each call with its stream."""

    def __init__(self):
        self.log = []
        self.stream = self.compute = Stream(self, "compute")
        self.cuda = types.SimpleNamespace(
            Stream=lambda device: Stream(self, "copies"),
            current_stream=lambda device=None: self.stream_of(device),
            stream=self.on_stream,
            device=lambda device: contextlib.nullcontext(),
        )
        self.nn = types.SimpleNamespace(Module=Module)
        self.device = lambda name: types.SimpleNamespace(type=name.partition(":")[0])

    @contextlib.contextmanager
    def on_stream(self, stream):
        before, self.stream = self.stream, stream
        yield
        self.stream = before

    def stream_of(self, device):
        return self.stream if device is None else Stream(self, f"current of {device}")

    def did(self, *what):
        self.log.append((self.stream.name, *what))


class Stream:
    def __init__(self, gpu, name):
        self.gpu = gpu
        self.name = name

    def record_event(self):
        self.gpu.did("record")
        return types.SimpleNamespace(synchronize=lambda: self.gpu.did("synchronize"))

    def wait_event(self, event):
        self.gpu.did("wait")

    def synchronize(self):
        self.gpu.did("synchronize with", self.name)


class Tensor:
    def __init__(self, gpu, name, device="cpu"):
        self.gpu = gpu
        self.name = name
        self.device = device
        self.is_cuda = device != "cpu"

    def to(self, device, non_blocking):
        assert non_blocking
        self.gpu.did("copy", self.name)
        return Tensor(self.gpu, f"{self.name} there")

    def record_stream(self, stream):
        self.gpu.did("is used by", self.name, stream.name)


class Module:
    def to(self, device):
        self.moved_to = device.type


@pytest.fixture
def gpu(monkeypatch):
    gpu = Gpu()
    monkeypatch.setitem(sys.modules, "torch", gpu)
    return gpu


def test_the_callable_waits_for_the_copy_and_the_next_batch_too(gpu):
    placement = Placement("cuda:0", None)

    def model(a, b):
        gpu.did("compute", a.name, b.name)
        return "output"

    placement.wait()
    assert placement.call(model, [Tensor(gpu, "a")], {"b": Tensor(gpu, "b")}) == "output"
    placement.wait()
    placement.wait()
    assert gpu.log == [
        ("copies", "copy", "a"),
        ("copies", "copy", "b"),
        ("copies", "record"),
        ("compute", "wait"),
        ("compute", "is used by", "a there", "compute"),
        ("compute", "is used by", "b there", "compute"),
        ("compute", "compute", "a there", "b there"),
        ("compute", "synchronize"),
    ]


def test_returned_outputs_are_computed_on_any_device(gpu):
    wait_until_computed(Tensor(gpu, "a"))
    assert gpu.log == []
    wait_until_computed(Tensor(gpu, "a", "cuda:1"))
    assert gpu.log == [("compute", "synchronize with", "current of cuda:1")]


def test_a_module_is_moved_by_its_placement(gpu):
    module = Module()
    Placement("cuda:0", module)
    assert module.moved_to == "cuda"
    Placement("cpu", module)
    assert module.moved_to == "cpu"
    assert gpu.log == []


# ------------------------------------------------------------------- with torch


@pytest.fixture
def sharded(torch):
    """A module that records the devices it was moved to in `moves`."""

    class Sharded(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.moves = []

        def to(self, device):
            self.moves.append(str(device))

        def forward(self, x):
            return 2 * x

    return Sharded()


@pytest.mark.torch
def test_a_module_is_moved_only_if_a_device_is_given(torch, batched, sharded):
    (output,) = batched(sharded)([torch.ones(1)])
    assert output.item() == 2
    assert sharded.moves == []
    batched(sharded, device="cpu")([torch.ones(1)])
    assert sharded.moves == ["cpu"]


@pytest.mark.torch
def test_a_module_without_parameters_is_on_the_device_of_its_buffers(torch, batched, sharded):
    sharded.register_buffer("scale", torch.ones(1, device="meta"))
    with pytest.raises(ValueError, match="not 'meta'"):
        batched(sharded)
    sharded.weight = torch.nn.Parameter(torch.ones(1))  # registered first
    assert " on cpu, " in repr(batched(sharded))


@pytest.mark.torch
def test_rows_are_waited_for_before_callers_get_them(torch, batched, monkeypatch):
    waited = []
    monkeypatch.setattr(
        "service_streamer.torch._rows.wait_until_computed", lambda x: waited.append(x.tolist())
    )
    batched(lambda x: (x, 2 * x))([torch.ones(1), torch.zeros(1)])
    assert waited == [[[1], [0]], [[2], [0]]]
