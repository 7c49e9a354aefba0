"""NativeModel with two batches in flight on a device: a GPU, or the CPU in its place.

Tensors are on the device, and arrays in host memory.
"""

import functools

import pytest
from native_models import FLOATS, PAIRS, SEQUENCES
from waits import LONG

pytest_plugins = ["native_fixtures"]
pytestmark = pytest.mark.torch


@pytest.fixture(
    params=[
        "cpu",
        pytest.param("cuda:0", marks=pytest.mark.needs_cuda),
        pytest.param(
            "cuda:1", marks=pytest.mark.needs_cuda
        ),  # differs from the default of most threads
    ]
)
def device(request, torch, cpu_as_device):
    if request.param == "cuda:1" and torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU only")
    return request.param


@pytest.fixture
def model(model, device):
    return functools.partial(model, device=device)


def array(torch, *numbers):
    return torch.tensor(numbers, dtype=torch.float32).numpy()


def test_items_from_the_host_and_on_the_device_are_answered_there(torch, served, device):
    streamer = served()
    (from_host,) = streamer.predict([array(torch, 1, 2, 3)])
    (on_device,) = streamer.predict([torch.tensor([1.0, 2, 3], device=device)])
    assert from_host.tolist() == on_device.tolist() == [4, 7, 10]
    assert from_host.device == torch.device("cpu")
    assert on_device.device == torch.device(device)


def test_all_items_of_a_request_must_be_on_the_same_device(torch, served, device):
    streamer = served()
    on_device = torch.zeros(3, device=device)
    wanted = f"on {device} and some are not"
    with pytest.raises(TypeError, match=wanted):
        streamer.predict([on_device, array(torch, 1, 2, 3)])
    with pytest.raises(TypeError, match="on the same device"):
        streamer.predict([array(torch, 1, 2, 3), on_device])


def test_requests_of_both_kinds_share_a_batch(torch, served, device):
    streamer = served(streamer={"policy": "window", "max_latency": 0.05})
    futures = [
        streamer.submit(
            [torch.full((3,), float(i), device=device) if i % 2 else array(torch, i, i, i)]
        )
        for i in range(8)
    ]
    assert [future.result(LONG)[0].tolist() for future in futures] == [
        [3.0 * i + 1] * 3 for i in range(8)
    ]


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("on_device", [True, False])
def test_sequences_are_padded_masked_and_trimmed(torch, served, device, side, on_device):
    streamer = served(
        "Sequences", SEQUENCES, collate="pad", mask="mask", pad_side=side, pad_value=9
    )
    ids = [torch.arange(1, length + 1, device=device) for length in (3, 1, 5)]
    outputs = streamer.predict([{"ids": each if on_device else each.cpu().numpy()} for each in ids])
    assert [output["seen"].tolist() for output in outputs] == [[1, 2, 3], [1], [1, 2, 3, 4, 5]]
    assert [int(output["sum"]) for output in outputs] == [6, 1, 15]


def test_items_of_any_strides_are_gathered(torch, served, device):
    streamer = served()
    spread = torch.arange(12.0, device=device).reshape(3, 4)
    outputs = streamer.predict([spread[:, 1], spread[1, 1:]])
    assert outputs[0].tolist() == [4, 16, 28]
    assert outputs[1].tolist() == [16, 19, 22]


@pytest.mark.parametrize("on_device", [True, False])
def test_a_batch_of_many_shapes_runs_in_more_groups_than_there_are_slots(
    torch, served, device, on_device
):
    streamer = served("Pairs", PAIRS)
    sizes = (1, 2, 3, 4, 5, 6, 7, 2)
    pairs = [(torch.ones(n), torch.full((n,), float(n))) for n in sizes]
    if on_device:
        pairs = [(a.to(device), b.to(device)) for a, b in pairs]
    else:
        pairs = [(a.numpy(), b.numpy()) for a, b in pairs]
    outputs = streamer.predict(pairs)
    assert [len(total) for total, _ in outputs] == list(sizes)
    assert [float(product) for _, product in outputs] == [1, 4, 9, 16, 25, 36, 49, 4]


@pytest.mark.parametrize("name", ["Floats", "Same"])
@pytest.mark.parametrize("on_device", [True, False])
def test_outputs_are_not_overwritten_by_later_batches(torch, served, device, name, on_device):
    streamer = served(name)
    kept = []
    for i in range(20):
        item = torch.full((3,), float(i))
        kept += streamer.predict([item.to(device) if on_device else item.numpy()])
    wanted = [float(i) if name == "Same" else 3.0 * i + 1 for i in range(20)]
    assert [output.tolist() for output in kept] == [[number] * 3 for number in wanted]


def test_output_numpy_copies_outputs_from_the_device(torch, served, device):
    streamer = served(output="numpy")
    (output,) = streamer.predict([torch.zeros(3, device=device)])
    assert type(output).__name__ == "ndarray"
    assert output.tolist() == [1, 1, 1]


def test_a_model_can_be_called_and_warmed_up(torch, model):
    called = model(warmup=(1, 8))
    assert [output.tolist() for output in called([torch.zeros(3)] * 2)] == [[1, 1, 1]] * 2


def test_workers_share_several_devices(torch, files, cpu_as_device, monkeypatch):
    from service_streamer.torch import NativeModel, _native

    # the CPU twice, in place of two devices
    monkeypatch.setattr(_native, "check_devices", lambda given: given)
    monkeypatch.setattr(_native, "find_devices", list)
    both = NativeModel(files("Floats"), signature=FLOATS, device=("cpu", "cpu"))
    assert both.workers == 2
    assert both([torch.zeros(3)])[0].tolist() == [1, 1, 1]


def test_a_forked_child_cannot_use_the_gpu_of_its_parent(model, monkeypatch):
    loaded = model()
    monkeypatch.setattr(loaded, "_devices", ["cuda:0"])
    monkeypatch.setattr(loaded, "_owner", -1)
    with pytest.raises(RuntimeError, match="make the NativeModel in the child"):
        loaded.capsule()
