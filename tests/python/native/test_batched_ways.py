"""BatchedModel makes batches in C++ or by torch's own functions, with the same results."""

import array
import random

import pytest

from service_streamer import ThreadedStreamer
from service_streamer.torch import BatchedModel

pytest_plugins = ["batched_fixtures"]
pytestmark = pytest.mark.torch

ODD_ITEMS = [
    "torch.zeros(2, 3).to_sparse()",
    "torch.zeros(2, device='meta')",
    "torch.zeros(2, dtype=torch.complex64).conj()",
    "torch.zeros(2, dtype=torch.complex64).conj().imag",
    "torch.zeros(2, dtype=torch.uint16)",
    "torch.zeros(2, dtype=torch.float8_e5m2)",
    "torch.quantize_per_tensor(torch.zeros(2), 1, 0, torch.qint8)",
    "torch.nested.nested_tensor([torch.zeros(2)])",
    "torch.zeros([1] * 8)",
    "torch.nn.Parameter(torch.arange(6.0))",
    "torch.arange(6).to(torch.bfloat16)[::2]",
    "torch.arange(6.0).view(2, 3).T",
    "torch.ones(1).expand(3)",
    "torch.zeros(0)",
    "torch.zeros(0, 4)",
    "torch.zeros(4, 0)",
    "torch.tensor(1.5)",
    "torch.eye(3, dtype=torch.bool)",
    "subclass_that_fails('__torch_function__')",
    "subclass_that_fails('__torch_dispatch__')",
    "numpy.arange(6)[::-1]",
    "numpy.arange(6, dtype='i1')[::-2]",
    "numpy.arange(6.0).reshape(2, 3).T",
    "numpy.zeros(3, dtype='i2, f4')['f1']",
    "numpy.broadcast_to(numpy.float16(1), (2, 2))",
    "numpy.frombuffer(b'abcd', 'u1')",
    "numpy.float32(1)",
    "numpy.array(True)",
    "numpy.ones(2, dtype='complex128')",
    "numpy.ones((2, 0), dtype='f4')",
    "numpy.zeros(2, dtype='u2')",
    "numpy.zeros(2, dtype='>i4')",
    "numpy.zeros(2, dtype='M8[s]')",
    "numpy.zeros(2, dtype='g')",
    "numpy.zeros(2, dtype='O')",
    "numpy.zeros(2, dtype='f4, f4')",
    "array.array('i', [1, 2])",
    "bytearray(b'ab')",
    "memoryview(b'ab').cast('c')",
    "memoryview(b'abcd').cast('B', (2, 2))",
    "b'ab'",
    "'ab'",
    "1",
    "None",
    "[]",
    "{}",
    "{'x': 1}",
    "{1: torch.zeros(1)}",
    "{'b': torch.zeros(2), 'a': torch.ones(3, 2)}",
    "{'mask': torch.zeros(2)}",
    "(torch.tensor(1), numpy.ones(2))",
    "[torch.tensor(1), None]",
]


@pytest.fixture
def unknown(torch, monkeypatch):
    """What makes batches has not been looked for yet."""
    from service_streamer.torch import _batching

    monkeypatch.setattr(_batching, "_loaded", None)


# ------------------------------------------------------------------- the choice


def test_without_the_extension_module_torch_makes_the_batches(torch, unknown, monkeypatch):
    def fail():
        raise ImportError("missing, or for another torch")

    monkeypatch.setattr("service_streamer.torch._batching.load_module", fail)
    with ThreadedStreamer(lambda x: x.sum(1), 8, collate="pad") as streamer:
        outputs = streamer.predict([torch.ones(2), torch.ones(3)])
    assert [output.item() for output in outputs] == [2, 3]
    assert repr(BatchedModel(abs)) == "<BatchedModel of abs on cpu, batches made by torch>"


def test_an_old_torch_is_refused(torch, unknown, monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.1.2+cu121")
    with pytest.raises(ImportError, match=r"torch 2\.1\.2\+cu121 is too old: 2\.2"):
        BatchedModel(abs)


def test_a_default_device_is_not_for_batches(torch, batching):
    model = BatchedModel(lambda x, mask, n: mask, collate="pad", mask="mask", lengths="n")
    with torch.device("meta"):
        outputs = model([torch.ones(1, device="cpu"), torch.ones(2, device="cpu")])
    assert [output.tolist() for output in outputs] == [[1, 0], [1, 1]]


def test_a_thread_that_takes_memory_meanwhile_gets_other_memory(torch, monkeypatch):
    from service_streamer.torch._memory import Buffers

    buffers = Buffers(pinned=False)
    first = buffers.take(0, torch.float32, (4,)).data_ptr()
    others = []
    use_count = torch._C._storage_Use_Count

    def interrupted(storage):
        count = use_count(storage)
        monkeypatch.undo()
        others.append(buffers.take(0, torch.float32, (4,)))
        return count

    monkeypatch.setattr(torch._C, "_storage_Use_Count", interrupted)
    mine = buffers.take(0, torch.float32, (4,))
    assert mine.data_ptr() == first != others[0].data_ptr()


# ------------------------------------------------------------------- the same results


@pytest.fixture
def both(torch):
    """Makes the batches of some items in both ways."""
    compiled = pytest.importorskip("service_streamer._torch", exc_type=ImportError)
    from service_streamer.torch import _by_torch

    def make(items, **settings):
        options = BatchedModel(abs, **settings)._options
        return [batches(torch, module, options, items) for module in (compiled, _by_torch)]

    return make


def batches(torch, module, options, items):
    """All batches of some items, or the exception, in a form that can be compared."""
    groups = module.Groups(module.Batcher(options), items, [0] * len(items))
    # What the item is, after "is", may have another name.
    refused = {n: (type(e), str(e).partition(" is ")[0]) for n, e in groups.refused.items()}
    made = [refused, groups.places]
    for number in range(len(groups.places)):
        try:
            args, kwargs, size, lengths = groups.collate(number)
        except Exception as error:
            made.append((type(error), str(error)))
        else:
            assert all(type(each) is torch.Tensor for each in (*args, *kwargs.values()))
            assert all(each.is_contiguous() for each in (*args, *kwargs.values()))
            named = {str(place): each for place, each in enumerate(args)} | kwargs
            told = {n: (each.dtype, each.shape, each.tolist()) for n, each in named.items()}
            made.append((len(args), told, size, lengths))
    return made


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize("settings", [{}, {"collate": "pad", "mask": "mask", "lengths": "n"}])
def test_any_item_is_read_alike(torch, both, settings):
    import numpy

    def subclass_that_fails(method):
        def fail(cls, *args, **kwargs):
            raise AssertionError(method)

        kind = type("Failing", (torch.Tensor,), {method: classmethod(fail)})
        with torch._C.DisableTorchFunction():
            return torch.ones(2).as_subclass(kind)

    known = {"torch": torch, "numpy": numpy, "array": array}
    known["subclass_that_fails"] = subclass_that_fails
    items = [eval(item, known) for item in ODD_ITEMS]
    compiled, by_torch = both(items, **settings)
    assert compiled == by_torch


def test_random_sequences_are_padded_alike(torch, both):
    rng = random.Random(0)
    dtypes = [torch.int64, torch.float32, torch.bool, torch.float16, torch.uint8]

    def sequence(dtype, rest):
        shape = (rng.choice((0, 1, 2, 5, 9)), *rest)
        return torch.randint(0, 200, shape).to(dtype)

    for _ in range(200):
        dtype = rng.choice(dtypes)
        rest = rng.choice([(), (2,), (0,), (3, 2)])
        items = [
            {"x": sequence(dtype, rest), "y": sequence(torch.int64, ())}
            for _ in range(rng.randint(1, 9))
        ]
        compiled, by_torch = both(
            items,
            collate="pad",
            pad_side=rng.choice(("left", "right")),
            pad_value=rng.choice((0, 7, -1.5, 300, {"y": 3}, float("nan"))),
            pad_to=rng.choice(((), (4, 8))),
            batch_sizes=rng.choice(((), (4, 8))),
            mask=rng.choice((None, "mask")),
            lengths=rng.choice((None, "lengths")),
        )
        assert str(compiled) == str(by_torch)  # nan is not equal to itself
