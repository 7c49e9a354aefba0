"""How arrays and tensors travel: large ones in shared memory, writable, each caller's own."""

import contextlib
import gc
import math
import os
import pickle
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from descriptors import open_descriptors
from travelling import LARGE, mapped_memfds, travel
from waits import LONG

from service_streamer import _core

# ------------------------------------------------------------------------ arrays

DTYPES = ["?", *"bBhHiIlLqQefdgFDG", "S7", "U7", "M8[s]", "m8[ms]", "V5", ">f4", ">i8", "i4,f8"]


# Around an array: the item, and the array that is in what arrives.
AROUND = {
    "nothing": (lambda array: array, lambda seen: seen),
    "list": (lambda array: [1, array], lambda seen: seen[1]),
    "tuple": (lambda array: (array, "x"), lambda seen: seen[0]),
    "dict": (lambda array: {"a": array}, lambda seen: seen["a"]),
    "more": (lambda array: [{"a": (array,)}], lambda seen: seen[0]["a"][0]),
}


@pytest.mark.parametrize("around", ["nothing", "more"])
@pytest.mark.parametrize("size", [0, 1, 24, LARGE])
@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_of_every_type_arrive_writable(dtype, size, around):
    put, get = AROUND[around]
    array = np.frombuffer(bytes(range(1, 251)) * (size * 32 // 250 + 1), np.uint8)
    array = np.resize(array, size * np.dtype(dtype).itemsize).view(dtype)
    if dtype == "U7":
        array = np.array([f"{i:07}" for i in range(size)], dtype)
    seen = get(*travel(put(array)))
    assert seen.dtype == array.dtype
    assert seen.shape == array.shape
    assert seen.tobytes() == array.tobytes()
    assert seen.flags.writeable
    seen[...] = array[::-1]


@pytest.mark.parametrize("around", ["nothing", "more"])
@pytest.mark.parametrize("shape", [(2, 3, 4), (50, 40, 30)])
@pytest.mark.parametrize("layout", ["C", "F", "reversed", "strided", "broadcast", "read-only"])
def test_arrays_of_every_layout_arrive(layout, shape, around):
    put, get = AROUND[around]
    array = np.arange(math.prod(shape), dtype=np.float64).reshape(shape)
    if layout == "F":
        array = np.asfortranarray(array)
    elif layout == "reversed":
        array = array[..., ::-1]
    elif layout == "strided":
        array = array[:, ::2]
    elif layout == "broadcast":
        array = np.broadcast_to(array[:1], shape)
    elif layout == "read-only":
        array.flags.writeable = False
    seen = get(*travel(put(array)))
    assert np.array_equal(seen, array)
    assert seen.flags.f_contiguous == array.flags.f_contiguous or layout == "broadcast"
    assert seen.flags.writeable == (layout != "read-only"), "as a pickle has it"


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (3, 0), (1, 1), (2, 1, 300), (1,) * 32])
def test_arrays_of_every_shape_arrive(shape, around):
    put, get = AROUND[around]
    array = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    seen = get(*travel(put(array)))
    assert (type(seen), seen.shape) == (np.ndarray, shape)
    assert np.array_equal(seen, array)


@pytest.mark.parametrize("around", AROUND)
def test_what_users_hang_on_the_type_of_numbers_arrives(around):
    put, get = AROUND[around]
    array = np.ones(3, np.dtype("f4", metadata={"unit": "m"}))
    assert get(*travel(put(array))).dtype.metadata == {"unit": "m"}


class Image(np.ndarray):
    pass


@pytest.mark.parametrize("around", AROUND)
def test_subclasses_of_arrays_stay_what_they_are(around):
    put, get = AROUND[around]
    seen = get(*travel(put(np.ones((2, 2)).view(Image))))
    assert type(seen) is Image
    assert seen.tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize("size", [3, LARGE])
def test_one_array_that_comes_twice_in_an_item_stays_one(size):
    array = np.arange(size)
    ((first, second),) = travel([array, array])
    assert first is second


def test_arrays_of_objects_arrive():
    array = np.array(["a", None, (1, 2)], dtype=object)
    assert travel(array)[0].tolist() == array.tolist()


def test_large_arrays_arrive_inside_of_other_objects():
    item = {"pixels": np.arange(LARGE), "mask": [np.ones(LARGE), "small", np.zeros(3)]}
    (seen,) = travel(item)
    assert np.array_equal(seen["pixels"], item["pixels"])
    assert np.array_equal(seen["mask"][0], item["mask"][0])
    assert seen["mask"][1] == "small"
    assert seen["mask"][2].tolist() == [0, 0, 0]


def test_many_large_buffers_arrive_in_their_order():
    items = [[np.full(LARGE, 10 * i + j) for j in range(3)] for i in range(5)]
    for i, item in enumerate(travel(*items)):
        assert [array[0] for array in item] == [10 * i, 10 * i + 1, 10 * i + 2]
        assert all(array.min() == array.max() for array in item)


@pytest.mark.parametrize("size", [100, LARGE])
def test_writing_into_an_array_changes_no_other_copy(size):
    array = np.arange(size)
    first, second = (seen[0] for seen in _core._travel((array,), 2))
    first[:] = -1
    assert np.array_equal(second, np.arange(size))
    assert np.array_equal(array, np.arange(size))
    assert np.array_equal(travel(array)[0], np.arange(size))


def test_an_array_is_valid_as_long_as_it_is_kept():
    kept = [travel(np.full(LARGE, i))[0] for i in range(50)]
    views = [array[10:20] for array in kept]
    for i in range(50):
        travel(np.full(LARGE, 1000 + i))
    assert [array.min() for array in kept] == list(range(50))
    del kept
    gc.collect()
    for i in range(50):
        travel(np.full(LARGE, 2000 + i))
    assert [(view.min(), view.max()) for view in views] == [(i, i) for i in range(50)]


def test_freed_blocks_are_used_again():
    gc.collect()
    travel(np.zeros(LARGE))
    before = open_descriptors()
    for _ in range(1000):
        travel(np.zeros(LARGE))
    assert open_descriptors() <= before  # what earlier tests had may go meanwhile


def test_other_threads_run_while_shared_memory_is_made(threads):
    sizes, growing, done = {}, set(), threading.Event()

    def watch():
        while not done.is_set():
            for path in Path("/proc/self/fd").iterdir():
                with contextlib.suppress(FileNotFoundError):
                    if "memfd:service_streamer" in str(path.readlink()):
                        block = path.stat()
                        if sizes.setdefault(block.st_ino, block.st_size) != block.st_size:
                            growing.add(block.st_ino)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(LONG)  # only a thread that releases the GIL lets others run
    try:
        threads.run(watch)
        for megabytes in (64, 96, 144, 216, 324, 486):  # each needs a larger block
            if not growing:
                travel(bytes(megabytes << 20))
    finally:
        sys.setswitchinterval(interval)
        done.set()
    assert threads.join() == [None]
    assert growing


def test_buffers_of_other_types_arrive():
    data = bytearray(os.urandom(LARGE))
    (seen,) = travel(pickle.PickleBuffer(data))
    assert bytes(seen) == bytes(data)
    assert not memoryview(seen).readonly


# --------------------------------------------------------------------------- torch


@pytest.mark.torch
@pytest.mark.parametrize("make", ["scalar", "transposed", "strided", "expanded", "conj", "grad"])
def test_tensors_of_every_layout_arrive(torch, make):
    tensor = torch.arange(60_000, dtype=torch.float64).reshape(200, 300)
    tensor = {
        "scalar": lambda: torch.tensor(3.5),
        "transposed": lambda: tensor.T,
        "strided": lambda: tensor[::2, 1:],
        "expanded": lambda: tensor[0].expand(7, 300),
        "conj": lambda: torch.complex(tensor, tensor).conj(),
        "grad": lambda: tensor.requires_grad_(),
    }[make]()
    ((seen,),) = travel([tensor])
    assert torch.equal(seen, tensor)
    assert seen.requires_grad == tensor.requires_grad
    if make != "grad":
        seen.fill_(0)


@pytest.mark.torch
def test_large_tensors_travel_in_shared_memory(torch):
    tensor = torch.zeros(LARGE)
    gc.collect()  # nothing of earlier tests may go meanwhile
    travel(tensor)
    before = mapped_memfds()
    kept = [travel(tensor)[0] for _ in range(5)]
    assert mapped_memfds() >= before + len(kept)
