"""Native models and kernels on a GPU."""

import functools

import numpy as np
import pytest
from native_models import FLOATS, PAIRS, changed, modules
from waits import LONG

from service_streamer import ThreadedStreamer

pytest_plugins = ["native_fixtures"]
pytestmark = [pytest.mark.torch, pytest.mark.needs_cuda]


@pytest.fixture
def real_gpu(torch):
    """Skips tests that cannot run on simulated GPUs."""
    if torch.version.cuda is None:
        pytest.skip("the GPU is a simulated one")


@pytest.fixture
def served_on_gpu(served):
    """Makes streamers of TorchScript on the first GPU."""
    return functools.partial(served, device="cuda:0")


def test_items_from_another_stream_are_waited_for(torch, served_on_gpu):
    streamer = served_on_gpu()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)  # cycles
        item = torch.zeros(3, device="cuda:0") + 5
        (output,) = streamer.predict([item])
    assert output.tolist() == [16, 16, 16]


def test_memory_of_outputs_is_not_reused_while_the_callers_stream_uses_it(torch, served_on_gpu):
    streamer = served_on_gpu("Floats")
    on_host = torch.full((3,), -1.0)
    used = []
    for i in range(50):
        (output,) = streamer.predict([torch.full((3,), float(i), device="cuda:0")])
        torch.cuda._sleep(5_000_000)
        used.append(output + 1)  # ends later than everything below
        del output
        streamer.predict([on_host])  # does not wait, and would reuse the memory
    assert [each.tolist() for each in used] == [[3.0 * i + 2] * 3 for i in range(50)]


def test_conjugated_outputs_have_their_numbers(model):
    (spec,) = FLOATS["inputs"]
    spec = {**spec, "dtype": "complex64"}
    signature = changed(FLOATS, inputs=[spec], outputs=[{**spec, "name": "0"}])
    loaded = model("Conjugated", signature, device="cuda:0")
    (output,) = loaded([np.full(3, 1 + 2j, "complex64")])
    assert output.tolist() == [1 - 2j] * 3


def test_an_error_of_cuda_is_not_left_to_torch(torch, model):
    if torch.version.cuda is not None:
        pytest.skip("only a simulated GPU fails on demand")
    loaded = model(device="cuda:0")
    loaded([torch.zeros(3)])
    torch.cuda._fail_next_event()
    with pytest.raises(RuntimeError, match="CUDA error: invalid resource handle"):
        loaded([torch.zeros(3)])
    assert torch.cuda._last_error() == 0
    (output,) = loaded([torch.zeros(3)])
    assert output.tolist() == [1, 1, 1]


def test_a_package_runs_on_the_gpu(torch, real_gpu, tmp_path):
    from service_streamer.torch import NativeModel, compile

    path = tmp_path / "floats.pt2"
    module = modules(torch)["Floats"]().eval().to("cuda:0")
    compile(module, torch.zeros(2, 3, device="cuda:0"), path, max_batch=8, device="cuda:0")
    outputs = NativeModel(path, device="cuda:0")([torch.ones(3)] * 3)
    assert [output.tolist() for output in outputs] == [[4, 4, 4]] * 3


def test_gpu_memory_does_not_grow(torch, served_on_gpu):
    streamer = served_on_gpu("Pairs", PAIRS)

    def ask(rounds):
        for i in range(rounds):
            a = torch.full((1 + i % 16,), 1.0, device="cuda:0" if i % 2 else "cpu")
            streamer.predict([(a, a)] * 8, timeout=LONG)
        torch.cuda.synchronize()
        return torch.cuda.memory_reserved()

    ask(100)
    before = ask(100)
    assert ask(1000) <= before


def test_all_gpus_serve_one_queue(torch, model):
    names = tuple(f"cuda:{i}" for i in range(torch.cuda.device_count()))
    if len(names) < 2:
        pytest.skip("there is one GPU only")
    with ThreadedStreamer(model(device=names), 1) as streamer:
        futures = [streamer.submit([torch.full((3,), float(i))]) for i in range(100)]
        for i, future in enumerate(futures):
            assert future.result(LONG)[0].tolist() == [3.0 * i + 1] * 3
        with pytest.raises(TypeError, match="the model wants a dense one on cpu"):
            streamer.predict([torch.zeros(3, device=names[0])])


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_images_are_normalised_as_on_the_cpu(torch, dtype):
    from service_streamer.torch import normalize_images

    images = torch.randint(0, 256, (3, 31, 17, 3), dtype=torch.uint8)
    there = normalize_images(images, dtype=dtype, device="cuda:0")
    assert there.device.type == "cuda"
    tolerance = 1e-6 if dtype == "float32" else 2e-3
    torch.testing.assert_close(
        there.cpu(), normalize_images(images, dtype=dtype), rtol=tolerance, atol=tolerance
    )


def test_images_of_several_sizes_on_a_gpu_are_refused_with_the_sizes(torch):
    from service_streamer.torch import normalize_images

    images = [torch.zeros(*size, 3, dtype=torch.uint8) for size in ((4, 5), (8, 8))]
    for options in ({"device": "cuda:0"}, {}):
        given = images if options else [image.to("cuda:0") for image in images]
        with pytest.raises(ValueError, match=r"\(4, 5, 3\), images\[1\] has \(8, 8, 3\)"):
            normalize_images(given, **options)


def test_the_module_was_built_with_kernels(real_gpu):
    from service_streamer import _torch_built

    assert _torch_built.has_kernels(), "nvcc was not found when _torch_built was built"
