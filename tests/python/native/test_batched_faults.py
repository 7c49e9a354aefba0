"""BatchedModel: wrong items, and callables that fail."""

import gc
import weakref
from collections import UserDict

import pytest
from waits import LONG, eventually

from service_streamer import OutputSizeMismatch

pytest_plugins = ["batched_fixtures"]
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("batching")]


# ------------------------------------------------------------------- items


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("'text'", "an item must be a tensor or an array of numbers, got str"),
        ("1.5", "an item must be a tensor or an array of numbers, got float"),
        ("[1.0, 2.0]", "tensor 0 of an item must be a tensor or an array of numbers, got float"),
        ("{'x': None}", "'x' of an item must be a tensor or an array of numbers, got NoneType"),
        ("{1: torch.zeros(2)}", "the keys of an item must be argument names (str), not 1"),
        ("{}", "not an empty dict"),
        ("()", "not an empty sequence"),
        ("numpy.array(['a'])", "an item is str32, the model wants numbers"),
        ("numpy.zeros(2, dtype='>f4')", "an item is big-endian float32, the model wants numbers"),
        ("numpy.array([None])", "an item is object, the model wants numbers"),
        ("numpy.ma.masked_equal([1.0, 2.0], 1)", "a masked array, whose hidden values"),
        ("memoryview(numpy.zeros(2, 'H'))", "a buffer of the format 'H', the model wants numbers"),
        ("torch.zeros(2).to_sparse()", "an item is a special tensor on cpu"),
        ("torch.zeros(2, device='meta')", "tensor on meta, the model wants a dense one on cpu"),
        ("torch.zeros([1] * 8)", "an item has 8 dimensions, at most 7 are possible"),
    ],
)
def test_an_item_that_is_not_a_tensor_fails_without_affecting_others(
    torch, batched, noting, item, message
):
    import numpy

    bad = eval(item, {"torch": torch, "numpy": numpy})
    model = batched(noting)
    outputs = model([torch.ones(2), bad, torch.zeros(2)])
    assert isinstance(outputs[1], TypeError)
    assert message in str(outputs[1])
    assert [outputs[place].tolist() for place in (0, 2)] == [[2, 2], [0, 0]]
    assert noting.batches == [[[1, 1], [0, 0]]]
    with pytest.raises(TypeError):
        model([bad])


def test_a_refused_item_fails_its_request_alone(torch, served_batched, noting):
    streamer = served_batched(noting)
    with pytest.raises(TypeError, match="got str"):
        streamer.predict(["text"] * 3)
    good, bad = streamer.submit([torch.ones(2)]), streamer.submit([torch.ones(2), "text"])
    assert good.result(LONG)[0].tolist() == [2, 2]
    with pytest.raises(TypeError, match="got str"):
        bad.result(LONG)


def test_items_that_do_not_fit_together_run_in_separate_batches_oldest_first(torch, batched):
    seen = []

    def model(x):
        seen.append((x.dtype, tuple(x.shape)))
        return x.sum() + torch.arange(len(x))

    items = [torch.ones(2), torch.ones(3), torch.ones(2, dtype=torch.int64), torch.ones(1, 2)]
    outputs = batched(model)([*items, torch.ones(3), torch.ones(2)])
    assert seen == [
        (torch.float32, (2, 2)),
        (torch.float32, (2, 3)),
        (torch.int64, (1, 2)),
        (torch.float32, (1, 1, 2)),
    ]
    assert [output.item() for output in outputs] == [4, 6, 2, 2, 7, 5]


def test_items_with_other_structures_run_in_separate_batches(torch, batched):
    def model(x, y=None):
        return x if y is None else x + y

    one = torch.ones(1)
    encoding = UserDict(x=one, y=one)  # as that of a tokenizer
    items = [one, (one, one), {"x": one}, {"y": one, "x": one}, (one,), encoding]
    outputs = batched(model)(items)
    assert [output.item() for output in outputs] == [1, 2, 1, 2, 1, 2]


def test_an_item_alone_in_its_group_fails_alone(torch, batched):
    runs = []

    def model(x):
        runs.append(len(x))
        return x @ torch.ones(3)

    outputs = batched(model)([torch.ones(3), torch.ones(3, dtype=torch.float64), torch.zeros(3)])
    assert isinstance(outputs[1], RuntimeError)
    assert outputs[1].__traceback__ is None  # the traceback would keep the batch alive
    assert "in model" in str(outputs[1].__cause__)
    assert [outputs[place].item() for place in (0, 2)] == [3, 0]
    assert runs == [2, 1]


def test_an_item_must_not_contain_a_generated_argument(torch, batched):
    model = batched(lambda x, mask: x, collate="pad", mask="mask")
    with pytest.raises(TypeError, match=r"'mask'.*length"):
        model([{"x": torch.ones(1), "mask": torch.ones(1)}])
    with pytest.raises(TypeError, match=r"dimension.*'mask'"):
        model([torch.tensor(1.0)])


# ------------------------------------------------------------------- callables


@pytest.mark.parametrize("settings", [{}, {"collate": "pad", "mask": "mask"}])
def test_sizes_larger_than_any_memory_are_an_error(torch, batched, settings):
    """A view needs no memory; the number of bytes of the batch would overflow to 0."""
    model = batched(lambda x, mask=None: x, **settings)
    with pytest.raises(MemoryError):
        model([torch.zeros((), dtype=torch.float64).expand(2**31, 2**30)])


def test_an_exception_of_the_callable_reaches_only_the_guilty_caller(torch, served_batched):
    def picky(x):
        if (x == 13).any():
            raise ValueError("13 is bad luck")
        return x

    streamer = served_batched(picky)
    good = [streamer.submit([torch.zeros(3)]) for _ in range(3)]
    bad = streamer.submit([torch.full((3,), 13.0)])
    with pytest.raises(ValueError, match="13 is bad luck"):
        bad.result(LONG)
    assert [future.result(LONG)[0].tolist() for future in good] == [[0, 0, 0]] * 3


def test_a_batch_without_enough_memory_runs_in_parts(torch, served_batched):
    def large(x):
        if len(x) > 2:
            torch.empty(1 << 46)
        return x

    outputs = served_batched(large).predict([torch.full((1,), float(i)) for i in range(8)])
    assert [output.item() for output in outputs] == list(range(8))


def test_a_group_of_one_without_enough_memory_runs_again_alone(torch, served_batched):
    sizes = []

    def crowded(x):
        sizes.append(x.shape[1])
        if sizes == [1, 2]:  # together with the others
            torch.empty(1 << 46)
        return x

    outputs = served_batched(crowded).predict([torch.ones(1), torch.ones(1), torch.ones(2)])
    assert [len(output) for output in outputs] == [1, 1, 2]
    assert sizes.count(2) == 2


def test_too_little_memory_for_the_outputs_is_a_memory_error_too(torch, batched):
    class Large(torch.Tensor):
        def cpu(self):
            return torch.empty(1 << 46)

    model = batched(lambda x: x.as_subclass(Large), output="cpu")
    with pytest.raises(MemoryError, match="memory"):
        model([torch.ones(1)])


def test_a_request_too_large_for_the_memory_gets_a_memory_error(torch, served_batched):
    streamer = served_batched(lambda x: x + torch.empty(1 << 46)[0])
    with pytest.raises(MemoryError, match="memory"):
        streamer.predict([torch.ones(1)])


@pytest.mark.parametrize(
    ("model", "received", "detail"),
    [
        ("lambda x: x.sum(0, keepdim=True)", 1, r"output '0' of the model has the shape \(1, 3\)"),
        ("lambda x: {'a': x, 'b': x.sum()}", None, r"output 'b' of the model has the shape \(\)"),
        ("lambda x: (x, None)", None, "must return tensors, or a tuple, list or dict"),
        ("lambda x: x.tolist()", None, "must return tensors, or a tuple, list or dict"),
    ],
)
def test_outputs_without_one_row_for_each_item_are_a_mismatch(
    torch, served_batched, model, received, detail
):
    runs = []
    function = eval(model)

    def counted(x):
        runs.append(len(x))
        return function(x)

    with pytest.raises(OutputSizeMismatch, match=detail) as caught:
        served_batched(counted).predict([torch.ones(3)] * 2)
    assert (caught.value.expected, caught.value.received) == (2, received)
    assert runs == [2]  # no single item is guilty


def test_a_mismatch_does_not_affect_other_groups(torch, batched):
    def model(x):
        return x if x.shape[1] == 2 else x[:1]

    items = [torch.ones(2), torch.ones(3), "text", torch.zeros(3), torch.zeros(2)]
    outputs = batched(model)(items)
    assert [outputs[place].tolist() for place in (0, 4)] == [[1, 1], [0, 0]]
    assert isinstance(outputs[2], TypeError)
    errors = [outputs[1], outputs[3]]
    assert [(type(e), e.expected, e.received) for e in errors] == [(OutputSizeMismatch, 2, 1)] * 2
    assert errors[0] is not errors[1]  # raising an exception changes its traceback
    assert all(error.__traceback__ is None for error in errors)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"collate": "pad", "trim": ["tokens"]}, "trim: .* output 'tokens'"),
        ({"output": "numpy"}, "output='numpy' is not possible for output '0' .* BFloat16"),
    ],
)
def test_outputs_that_contradict_the_settings_fail_all_items(
    torch, served_batched, options, message
):
    runs = []

    def model(x):
        runs.append(len(x))
        return x.bfloat16()

    together = {"policy": "window", "max_latency": LONG}
    streamer = served_batched(model, batch_size=2, streamer=together, **options)
    futures = [streamer.submit([torch.ones(1)]) for _ in range(2)]
    for future in futures:
        with pytest.raises(ValueError, match=message):
            future.result(LONG)
    assert runs == [2]


def test_no_reference_to_a_batch_is_kept(torch, served_batched):
    streamer = served_batched(lambda x: x.missing)
    item = torch.ones(3)
    watched = weakref.ref(item)
    with pytest.raises(AttributeError):
        streamer.predict([item])
    del item

    def is_gone():
        gc.collect()
        return watched() is None

    eventually(is_gone)  # the worker drops its reference after the answer
