"""BatchedModel: calls any callable on batches made from lists of items."""

from collections import UserDict

import pytest
from waits import LONG

from service_streamer import ThreadedStreamer

pytest_plugins = ["batched_fixtures"]
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("batching")]


# ------------------------------------------------------------------- answers


def test_each_item_gets_its_row(torch, batched):
    double = batched(lambda x: 2 * x)
    first, second = double([torch.tensor([1.0, 2]), torch.tensor([3.0, 4])])
    assert first.tolist() == [2, 4]
    assert second.tolist() == [6, 8]
    assert double([]) == []


def test_a_module_computes_no_gradients_and_callers_may_modify_their_rows(torch, batched):
    linear = torch.nn.Linear(2, 2)
    torch.nn.init.ones_(linear.weight)
    torch.nn.init.zeros_(linear.bias)
    first, second = batched(linear)([torch.ones(2), torch.zeros(2)])
    assert not first.requires_grad
    first += 1
    assert first.tolist() == [3, 3]
    assert second.tolist() == [0, 0]


def test_a_callable_may_enable_gradients(torch, batched):
    @torch.enable_grad()
    def slope(x):
        x.requires_grad_()
        return torch.autograd.grad((x**3).sum(), x, create_graph=True)[0]

    (output,) = batched(slope)([torch.tensor([2.0])])
    assert output.tolist() == [12]
    assert not output.requires_grad


def test_arrays_are_items_and_may_be_outputs(torch, batched):
    import numpy as np

    item = np.arange(6, dtype=np.int16).reshape(2, 3)
    (output,) = batched(lambda x: 2 * x, output="numpy")([item.T])
    assert isinstance(output, np.ndarray)
    assert output.dtype == np.int16
    assert output.tolist() == (2 * item.T).tolist()
    (output,) = batched(lambda x: x, output="cpu")([item])
    assert isinstance(output, torch.Tensor)


def test_any_mapping_of_tensors_is_an_item(torch, batched):
    given = UserDict(x=torch.ones(2), y=torch.zeros(2))
    answers = batched(lambda x, y: x - y)([given, dict(given)])
    assert [each.tolist() for each in answers] == [[1, 1]] * 2
    with pytest.raises(TypeError, match="not an empty dict"):
        batched(lambda x: x)([UserDict()])


def test_tuples_are_positional_and_dicts_named_arguments(torch, batched):
    def divide(a, b):
        return a / b

    model = batched(divide)
    one, two = torch.tensor([1.0]), torch.tensor([2.0])
    assert model([(one, two), (two, two)])[1].tolist() == [1]
    assert model([{"b": one, "a": two}])[0].tolist() == [2]
    assert model([[two, one]])[0].tolist() == [2]


def test_the_structure_of_the_outputs_is_kept(torch, batched):
    items = [torch.tensor([1.0, 2]), torch.tensor([3.0, 4])]
    pair = batched(lambda x: (x, x.sum(1)))(items)
    assert [type(each) for each in pair] == [tuple, tuple]
    assert pair[1][1].item() == 7
    assert batched(lambda x: [x, x + 1])(items)[0][1].tolist() == [2, 3]
    assert batched(lambda x: {"sum": x.sum(1)})(items)[1]["sum"].item() == 7
    assert batched(lambda x: ())(items) == [(), ()]


def test_an_item_may_have_no_dimension(torch, batched):
    outputs = batched(lambda x: 2 * x)([torch.tensor(1.0), torch.tensor(2.0)])
    assert [output.item() for output in outputs] == [2, 4]


# ------------------------------------------------------------------- memory


def test_batches_reuse_the_same_aligned_memory(torch, batched):
    addresses = []

    def model(x):
        addresses.append(x.data_ptr())
        return 2 * x

    collating = batched(model)
    for _ in range(5):
        collating([torch.ones(100)] * 3)
    collating([torch.ones(10)])
    assert len(set(addresses)) == 1
    assert addresses[0] % 64 == 0


def test_arguments_that_a_callable_keeps_are_not_overwritten(torch, batched):
    kept = []

    def model(x):
        kept.append(x[1:])
        return 2 * x

    collating = batched(model)
    for number in range(3):
        collating([torch.full((4,), float(number))] * 2)
    assert [view.unique().tolist() for view in kept] == [[0], [1], [2]]


def test_a_callable_may_return_its_input(torch, batched):
    same = batched(lambda x: x)
    outputs = [same([torch.full((4,), float(number))])[0] for number in range(3)]
    arrays = [output.numpy() for output in outputs]
    del outputs
    same([torch.full((4,), 9.0)])
    assert [array[0] for array in arrays] == [0, 1, 2]


def test_many_threads_may_call_it(torch, batched, threads):
    double = batched(lambda x: 2 * x)

    def ask(number):
        item = torch.full((40_000,), float(number))  # large enough to be copied without the GIL
        return {double([item, item])[1].unique().item() for _ in range(20)}

    for number in range(4):
        threads.run(ask, number)
    assert threads.join() == [{2.0 * number} for number in range(4)]


# ------------------------------------------------------------------- in a streamer


def test_a_callable_on_batches_can_be_streamed(torch, batched):
    with ThreadedStreamer(torch.nn.Softmax(-1), 8, collate="pad", device="cpu") as streamer:
        outputs = streamer.predict([torch.ones(1), torch.ones(1)])
        assert [output.tolist() for output in outputs] == [[1], [1]]
    with ThreadedStreamer(lambda x: 2 * x, 8, device="cpu") as streamer:
        assert streamer.predict([torch.ones(1)])[0].tolist() == [2]


def test_any_streamer_accepts_a_batched_model(torch, batched, streamers):
    """In a thread, in a worker process, and in the process of a RedisWorker."""

    def model(ids, mask):
        if (ids == 13).any():
            raise ValueError("13 is bad luck")
        return {"sum": (ids * mask).sum(1), "tokens": ids}

    predict = batched(model, collate="pad", mask="mask", trim=["tokens"], pad_value=99)
    streamer = streamers(predict)
    requests = [[{"ids": torch.arange(1, n + 1)} for n in lengths] for lengths in ((3, 1), (5,))]
    futures = [streamer.submit(items) for items in requests]
    refused = streamer.submit([{"ids": torch.ones(2)}, "text"])
    unlucky = streamer.submit([{"ids": torch.tensor([13])}])
    (first, second), (third,) = (future.result(LONG) for future in futures)
    assert [int(output["sum"]) for output in (first, second, third)] == [6, 1, 15]
    assert [output["tokens"].tolist() for output in (second, third)] == [[1], [1, 2, 3, 4, 5]]
    with pytest.raises(TypeError, match="str"):
        refused.result(LONG)
    with pytest.raises(ValueError, match="13 is bad luck"):
        unlucky.result(LONG)


def test_a_forked_child_has_its_own_memory(torch, served_batched):
    import os

    streamer = served_batched(lambda x: x)
    kept = streamer.predict([torch.ones(3)])[0]
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if streamer.predict([torch.zeros(3)])[0].tolist() == [0, 0, 0] else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert kept.tolist() == [1, 1, 1]


@pytest.mark.parametrize("batching", ["compiled"], indirect=True)
def test_it_can_be_sent_to_a_worker_process(torch, batched, program):
    program(
        """
        from service_streamer import Streamer
        from service_streamer.torch import BatchedModel

        def model(x, mask):
            return (x * mask).sum(1)

        def sign(item):
            return bool(item[0] > 0)

        if __name__ == "__main__":
            import torch

            predict = BatchedModel(model, collate="pad", mask="mask", key=sign)
            assert predict([torch.ones(1)])[0].item() == 1
            with Streamer(predict, 8) as streamer:
                future = streamer.submit([torch.ones(n) for n in (1, 2, 3)])
                assert [output.item() for output in future.result(60)] == [1, 2, 3]
                try:
                    streamer.predict([torch.ones(1), [1.0]], timeout=60)
                except TypeError as error:
                    assert "of an item must be a tensor" in str(error), error
                else:
                    raise AssertionError
        """
    )


# ------------------------------------------------------------------- a GPU


@pytest.mark.needs_cuda
def test_batches_are_copied_to_a_gpu(torch, batched):
    model = torch.nn.Linear(3, 2)
    weight, bias = model.weight.detach().clone(), model.bias.detach().clone()
    on_gpu = batched(model, device="cuda:0")
    for _ in range(20):
        items = [torch.rand(3) for _ in range(16)]
        expected = torch.stack(items) @ weight.T + bias
        outputs = on_gpu(items)
        assert outputs[0].device.type == "cuda"
        assert torch.allclose(torch.stack(outputs).cpu(), expected, atol=1e-5)
    (output,) = batched(lambda x: 2 * x, device="cuda:0", output="numpy")([torch.ones(3)])
    assert output.tolist() == [2, 2, 2]


@pytest.mark.needs_cuda
def test_a_module_runs_where_its_parameters_are(torch, batched):
    model = batched(torch.nn.Linear(3, 2).to("cuda:0"), output="cpu")
    assert model([torch.ones(3)])[0].device.type == "cpu"


@pytest.mark.needs_cuda
def test_outputs_on_a_gpu_are_computed_when_callers_get_them(torch, batched):
    def slow(x):
        torch.cuda._sleep(100_000_000)
        return 2 * x

    (output,) = batched(slow, device="cuda:0")([torch.ones(3)])
    with torch.cuda.stream(torch.cuda.Stream()):  # does not wait for the work of the model
        assert output.cpu().tolist() == [2, 2, 2]


@pytest.mark.needs_cuda
def test_arguments_that_a_failed_call_kept_are_not_overwritten(torch, batched):
    kept = []

    def fail(x):
        kept.append(x)
        raise ValueError("at once: what it got is still being copied")

    model = batched(fail, device="cuda:0")
    for number in range(50):
        with pytest.raises(ValueError, match="at once"):
            model([torch.full((1 << 20,), float(number))])  # the copy takes longer than the failure
    assert all(bool((each == number).all()) for number, each in enumerate(kept))
