"""torch's tensors through worker processes: neither side need have imported torch before."""

import os

import pytest
from descriptors import is_block, open_files
from process_models import die, files_in_shared_memory, first_time
from waits import LONG, eventually

from service_streamer import ThreadedStreamer

pytestmark = pytest.mark.torch

LARGE = 100_000  # numbers: in shared memory; fewer travel in the message

every_size = pytest.mark.parametrize("size", [3, LARGE], ids=["small", "large"])


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize(
    ("method", "output"), [("spawn", "items"), ("forkserver", "batch"), ("fork", "batch")]
)
def test_a_caller_that_did_not_import_torch_gets_tensors(program, method, output):
    program(
        """
        import sys
        from service_streamer import ManagedModel, Streamer

        class Model(ManagedModel):
            def init_model(self):
                import torch
                self.model = torch

            def predict(self, batch):
                torch = self.model
                return torch.stack([torch.full((size,), float(item)) for item in batch])

        def check(streamer):
            future = streamer.submit([1, 2, 3])
            other = streamer.submit([4])
            rows = future.result(60)
            torch = sys.modules["torch"]
            assert isinstance(rows, list if output == "items" else torch.Tensor)
            assert [row.shape for row in rows] == [(size,)] * 3
            assert [row.unique().tolist() for row in rows] == [[1], [2], [3]]
            assert len({row.untyped_storage().data_ptr() for row in rows}) == 1
            rows[0].add_(5)
            assert [row.unique().tolist() for row in rows] == [[6], [2], [3]]
            assert other.result(60)[0].unique().tolist() == [4]

        method, output, size = *sys.argv[1:3], int(sys.argv[3])
        if __name__ == "__main__":
            with Streamer(Model, 8, mp_start_method=method, output=output) as streamer:
                streamer.wait_ready(60)
                assert "torch" not in sys.modules
                check(streamer)
        """,
        method,
        output,
        str(LARGE),
        timeout=110,
    )


@pytest.mark.usefixtures("torch")
def test_a_worker_that_did_not_import_torch_gets_tensors(program):
    program(
        """
        import sys
        from service_streamer import Streamer

        def predict(batch):
            assert "torch" not in before
            return [(type(item).__module__, float(item.sum())) for item in batch]

        before = set(sys.modules)
        if __name__ == "__main__":
            with Streamer(predict, 8) as streamer:
                streamer.wait_ready(60)
                import torch
                small, large = torch.ones(3), torch.ones(int(sys.argv[1]))
                outputs = streamer.predict([small, large], timeout=60)  # the worker imports torch
                assert outputs == [("torch", 3), ("torch", large.numel())]
        """,
        str(LARGE),
        timeout=110,
    )


@every_size
def test_tensors_arrive_writable_and_writes_of_a_model_stay_its_own(
    process_streamers, torch, tmp_path, size
):
    def predict(batch):
        sums = [float(tensor.sum()) for tensor in batch]
        for tensor in batch:
            tensor.fill_(-1)
        if first_time(tmp_path):
            die("SIGKILL")  # the batch is run again
        return [(os.getpid(), total, tensor) for total, tensor in zip(sums, batch, strict=True)]

    streamer = process_streamers(predict)
    first, second = items = [torch.arange(size, dtype=torch.float32) for _ in range(2)]
    for pid, total, seen in streamer.predict(items, timeout=LONG):
        assert pid != os.getpid()
        assert total == float(first.sum())
        assert seen.unique().tolist() == [-1]
    assert first.equal(second)
    assert first[-1] == size - 1


@every_size
def test_a_batch_of_rows_is_a_view_for_each_caller(process_streamers, process_gate, torch, size):
    def predict(batch):
        return torch.stack([torch.full((size,), item) for item in batch])

    process_gate._predict = lambda batch: batch if batch == ["first"] else predict(batch)
    streamer = process_streamers(process_gate, batch_size=3, output="batch")
    held = streamer.submit(["first"])
    process_gate.wait_entered()
    futures = [streamer.submit([1, 2]), streamer.submit([3])]
    process_gate.open()
    first, second = (future.result(LONG) for future in futures)
    held.result(LONG)
    assert process_gate.batches == [["first"], [1, 2, 3]]
    assert (tuple(first.shape), tuple(second.shape)) == ((2, size), (1, size))
    first.zero_()
    assert first.unique().tolist() == [0]
    assert second.unique().tolist() == [3]
    assert first[0].untyped_storage().data_ptr() == first[1].untyped_storage().data_ptr()


# ------------------------------------------------------------------------- every kind of view


def views(torch, n):
    """Tensors of all kinds, most of them views, whose first dimension is `n`."""
    block = torch.arange(24.0 * n).reshape(n, 2, 3, 4)
    flat = block.reshape(n, 24)
    pairs = torch.complex(flat, flat + 1)
    odd = torch.ones(n, 4, requires_grad=True)
    with torch.inference_mode():
        inference = torch.ones(n, 4)[:, 1]
    return {
        "dense": block,
        "column": flat[:, 1],
        "inner column": block[:, :, 1, 2],
        "step": flat[:, ::5],
        "transposed": flat[:, :2].T,
        "expanded": block[:, :1, :1, :1].expand(n, 2, 3, 4),
        "channels last": block.contiguous(memory_format=torch.channels_last),
        "no dimension": block.sum(),
        "no element": flat[:, :0],
        "conj": pairs.conj(),
        "a column of conj": pairs.conj()[:, 1],
        "neg": pairs.conj().imag,
        "a column of neg": pairs.conj().imag[:, 1],
        "real": pairs.real[:, 1],
        "bfloat16": flat.to(torch.bfloat16)[:, 1],
        "bool": (flat > 3)[:, 1],
        "requires grad": odd,
        "of a graph": odd[:, 1].detach().requires_grad_(),
        "Parameter": torch.nn.Parameter(torch.ones(n, 4)[:, 1]),
        "inference": inference,
        "sparse": flat[:, :3].to_sparse(),
    }


@pytest.mark.parametrize("output", ["items", "batch"])
def test_every_view_of_a_tensor_travels(streamers, torch, output):
    settings = {} if output == "items" else {"output": output}
    streamer = streamers(lambda batch: list(batch), 8, **settings)
    for n in (0, 1, 2):
        sent = views(torch, n)
        for name, got in zip(sent, streamer.predict(list(sent.values())), strict=True):
            same = sent[name]
            about = (type(got), got.dtype, got.shape, got.requires_grad, got.layout)
            assert about == (type(same), same.dtype, same.shape, same.requires_grad, same.layout)
            assert torch.equal(got.to_dense(), same.to_dense()), (name, n)


@pytest.mark.parametrize("output", ["items", "batch"])
def test_every_view_of_a_tensor_is_an_output(streamers, torch, output):
    names = [name for name, each in views(torch, 2).items() if each.dim() and len(each) == 2]
    names.remove("sparse")  # it has no rows that are views
    settings = {} if output == "items" else {"output": output}
    streamer = streamers(lambda batch: views(torch, len(batch))[batch[0]], 8, **settings)
    for name in set(names) - {"transposed"}:
        for n in (1, 2):
            got, same = streamer.predict([name] * n), views(torch, n)[name]
            assert torch.equal(torch.stack(list(got)), same), (name, n)
            if output == "batch":
                assert (type(got), got.shape) == (type(same), same.shape)


def test_every_view_of_a_tensor_travels_over_ray(torch):
    pytest.importorskip("ray")
    from service_streamer._ray.payloads import PayloadReader, Store

    for n in (0, 1, 2):
        for name, each in views(torch, n).items():
            got = PayloadReader([]).load(Store().pack(each))
            assert torch.equal(got.to_dense(), each.to_dense()), (name, n)


@pytest.mark.parametrize("output", ["items", "batch"])
def test_several_outputs_of_torch_stay_together(streamers, torch, output):
    def model(batch):
        return torch.tensor([[0.0, float(item), 1.0] for item in batch]).topk(2, dim=1)

    settings = {} if output == "items" else {"output": output}
    streamer = streamers(model, 50, **settings)
    for n in (1, 2, 65):
        got = streamer.predict(range(2, n + 2))
        if output == "batch":
            got = [type(got)(row) for row in zip(*got, strict=True)]
        assert {type(each) for each in got} == {torch.return_types.topk}
        assert [each.values.tolist() for each in got] == [[i, 1] for i in range(2, n + 2)]
        assert {tuple(each.indices.tolist()) for each in got} == {(1, 2)}


class ReusingTensors:
    """Models that fill the same tensor for each batch, and models that make a new one."""

    def __init__(self, torch):
        self.torch, self.out = torch, torch.zeros(70, 4)

    def _fill(self, batch):
        self.out[: len(batch)] = self.torch.tensor(batch, dtype=self.torch.float)[:, None]
        return self.out[: len(batch)]

    def view(self, batch):
        return self._fill(batch)

    def detached(self, batch):
        return self._fill(batch).detach()

    def in_inference_mode(self, batch):
        with self.torch.inference_mode():
            return self._fill(batch)

    def rows(self, batch):
        return list(self._fill(batch))

    def array(self, batch):
        return self._fill(batch).numpy()

    def fresh(self, batch):
        return self.torch.tensor([[float(item)] * 4 for item in batch])

    def fresh_view(self, batch):
        return self.fresh(batch)[:, :2]

    def fresh_rows(self, batch):
        return list(self.fresh(batch))

    def fresh_array(self, batch):
        return self.fresh(batch).numpy()


@pytest.mark.parametrize("output", ["items", "batch"])
def test_tensors_that_the_model_fills_again_are_copied_and_no_others(torch, output):
    for name in [name for name in vars(ReusingTensors) if not name.startswith("_")]:
        made = []
        call = getattr(ReusingTensors(torch), name)

        def model(batch, call=call, made=made):
            outputs = call(batch)
            made.append((torch.as_tensor(outputs[0]).data_ptr(), outputs[0].nbytes * len(batch)))
            return outputs

        with ThreadedStreamer(model, 65, output=output) as streamer:
            for n in (1, 2, 65):
                got = streamer.predict(range(n))
                streamer.predict(range(100, 100 + n))
                assert [float(row[0]) for row in got] == list(range(n)), name
                start, size = made[-2]
                inside = start <= torch.as_tensor(got[-1]).data_ptr() < start + 2 * size
                assert not name.startswith("fresh") or inside, (name, n)


def test_the_threads_of_torch_in_a_worker_are_counted(process_streamers, torch):
    module = torch.nn.ReLU()
    streamer = process_streamers(
        lambda batch: list(module(torch.stack(batch))), worker_num=2, threads_per_worker=3
    )
    streamer.wait_ready(LONG)
    stats = streamer.stats()
    assert [worker.intra_op_threads for worker in stats.worker_processes] == [3, 3]
    assert stats.intra_op_threads == 3


# ------------------------------------------------- tensors that are in shared memory before


@every_size
def test_a_tensor_in_shared_memory_arrives_as_it_was_and_is_shared_no_more(
    process_streamers, process_gate, torch, size
):
    def predict(batch):
        process_gate([len(tensor) for tensor in batch])
        sums = []
        for tensor in batch:
            sums.append(float(tensor.sum()))
            tensor.fill_(-1)
        return sums

    streamer = process_streamers(predict)
    tensor = torch.ones(size).share_memory_()
    future = streamer.submit([tensor, tensor, tensor[1:]])
    process_gate.wait_entered()
    tensor.fill_(2)
    process_gate.open()
    assert future.result(LONG) == [size, size, size - 1]
    assert tensor.is_shared()
    assert tensor.unique().tolist() == [2]


@every_size
def test_tensors_in_shared_memory_leave_nothing_behind(process_streamers, torch, size):
    streamer = process_streamers(lambda batch: [tensor + 1 for tensor in batch])

    def ask():
        (output,) = streamer.predict([torch.ones(size).share_memory_()], timeout=LONG)
        assert output.unique().tolist() == [2]

    def count(pid):
        return sum(not is_block(name) for name in open_files(pid))

    ask()
    (worker,) = streamer.stats().worker_processes
    before = [count(pid) for pid in (os.getpid(), worker.pid)]
    for _ in range(50):
        ask()
    for pid, most in zip((os.getpid(), worker.pid), before, strict=True):
        # fewer: what an earlier test has dropped is gone
        eventually(lambda pid=pid, most=most: count(pid) <= most)
    mine = tuple(f"torch_{pid}_" for pid in (os.getpid(), worker.pid))
    assert not [name for name in files_in_shared_memory() if name.startswith(mine)]
