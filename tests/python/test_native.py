"""NativeModel: requests of tensors and arrays, answered by C++ threads."""

import asyncio
import os
import sys
import threading

import pytest
from conftest import LONG, eventually
from native_models import FLOATS, PAIRS, SEQUENCES, changed, save_package, save_script

from service_streamer import (
    OutputSizeMismatch,
    RequestTimeout,
    StreamerClosed,
    ThreadedStreamer,
)

pytestmark = pytest.mark.torch


@pytest.fixture(scope="session")
def files(torch, tmp_path_factory):
    """The path of a model file, made when it is first asked for."""
    pytest.importorskip("service_streamer._torch")
    folder = tmp_path_factory.mktemp("models")

    def file(name, kind="pt"):
        path = folder / f"{name}.{kind}"
        if not path.exists():
            (save_package if kind == "pt2" else save_script)(torch, name, path)
        return path

    return file


@pytest.fixture
def model(files):
    from service_streamer.torch import NativeModel

    def make(name="Floats", signature=FLOATS, kind="pt", **options):
        return NativeModel(files(name, kind), signature=signature, **options)

    return make


@pytest.fixture
def served(model):
    """Makes streamers of native models and closes them after the test."""
    made = []

    def make(*args, batch_size=8, streamer=None, **options):
        made.append(ThreadedStreamer(model(*args, **options), batch_size, **(streamer or {})))
        return made[-1]

    yield make
    for streamer in made:
        streamer.close(drain=False, timeout=LONG)


@pytest.fixture(params=["pt", "pt2"])
def kind(request):
    return request.param


# ------------------------------------------------------------------- answers


def test_tensors_are_answered_with_tensors(torch, served, kind):
    streamer = served(kind=kind)
    first, second = streamer.predict([torch.tensor([1.0, 2, 3]), torch.zeros(3)])
    assert first.tolist() == [4, 7, 10]
    assert second.tolist() == [1, 1, 1]
    assert not first.requires_grad
    first += 1  # a caller may do what he likes with it
    assert streamer.predict([torch.zeros(3)])[0].tolist() == [1, 1, 1]


def test_arrays_are_answered_too(served):
    import numpy as np

    streamer = served()
    (output,) = streamer.predict([np.array([1, 2, 3], np.float32)])
    assert output.tolist() == [4, 7, 10]


def test_arrays_may_be_answered_with_arrays(torch, served):
    import numpy as np

    streamer = served(output="numpy")
    (output,) = streamer.predict([torch.zeros(3)])
    assert isinstance(output, np.ndarray)
    assert output.tolist() == [1, 1, 1]


def test_views_of_any_strides_are_read(torch, served):
    import numpy as np

    streamer = served()
    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    reversed_column = table[::-1, 1][:3]
    column = torch.from_numpy(table).t()[0][:3]
    outputs = streamer.predict([reversed_column, column])
    assert [output.tolist() for output in outputs] == [[31, 22, 13], [1, 10, 19]]


def test_a_batch_is_a_slice_of_the_outputs(torch, served):
    streamer = served(streamer={"output": "batch"})
    output = streamer.predict([torch.zeros(3), torch.ones(3)])
    assert output.tolist() == [[1, 1, 1], [4, 4, 4]]


def test_a_request_larger_than_a_batch_is_joined(torch, served):
    items = [torch.full((3,), float(i)) for i in range(50)]
    expected = [[3 * i + 1.0] * 3 for i in range(50)]
    assert [output.tolist() for output in served().predict(items)] == expected
    joined = served(streamer={"output": "batch"}).predict(items)
    assert joined.tolist() == expected


def test_an_empty_request_has_no_outputs(served):
    assert served().predict([]) == []


def test_requests_of_many_threads_share_batches(torch, served, threads):
    streamer = served(workers=2)

    def ask(number):
        return [streamer.predict([torch.full((3,), float(number + i))]) for i in range(50)]

    for number in range(8):
        threads.run(ask, number)
    for number, answers in enumerate(threads.join()):
        assert [answer[0][0].item() for answer in answers] == [
            3 * (number + i) + 1 for i in range(50)
        ]


def test_tasks_are_answered(torch, served, run):
    streamer = served()

    async def ask(number):
        (output,) = await streamer.apredict([torch.full((3,), float(number))])
        return output[0].item()

    async def main():
        return await asyncio.gather(*(ask(number) for number in range(20)))

    assert run(main()) == [3 * number + 1 for number in range(20)]


def test_done_callbacks_are_called(torch, served):
    streamer = served()
    called = threading.Event()
    future = streamer.submit([torch.zeros(3)])
    future.add_done_callback(lambda future: called.set())
    assert called.wait(LONG)
    assert future.result()[0].tolist() == [1, 1, 1]


def test_a_model_that_returns_its_input_gives_everybody_his_own(torch, served):
    streamer = served("Same", batch_size=1)
    outputs = [streamer.predict([torch.full((3,), float(i))])[0] for i in range(5)]
    assert [output[0].item() for output in outputs] == list(range(5))


def test_it_can_be_called(torch, model):
    called = model()
    assert [output.tolist() for output in called([torch.zeros(3)])] == [[1, 1, 1]]
    assert called([]) == []
    with pytest.raises(ValueError, match="batch_size=9 is more than the 8"):
        called([torch.zeros(3)] * 9)


# ------------------------------------------------------------- items that vary


def test_tuples_of_one_shape_are_run_together(torch, served):
    streamer = served("Pairs", PAIRS)
    lengths = [2, 3, 2]
    items = [(torch.ones(length), torch.full((length,), 2.0)) for length in lengths]
    for length, (added, product) in zip(lengths, streamer.predict(items), strict=True):
        assert added.tolist() == [3] * length
        assert product.item() == 2 * length


def test_sequences_are_padded_and_trimmed(torch, served):
    streamer = served("Sequences", SEQUENCES, collate="pad", mask="mask", pad_value=99)
    outputs = streamer.predict([{"ids": torch.arange(1, n + 1)} for n in (3, 1, 5)])
    assert [output["seen"].tolist() for output in outputs] == [[1, 2, 3], [1], [1, 2, 3, 4, 5]]
    assert [output["sum"].item() for output in outputs] == [6, 1, 15]


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_padded_batch_is_as_long_as_its_longest(torch, served, side):
    streamer = served(
        *("Sequences", SEQUENCES),
        collate="pad",
        mask="mask",
        pad_side=side,
        pad_to=(8,),
        batch_sizes=(4, 8),
        streamer={"output": "batch"},
    )
    output = streamer.predict([{"ids": torch.tensor([1, 2])}, {"ids": torch.tensor([3])}])
    assert output["seen"].tolist() == ([[1, 2], [0, 3]] if side == "left" else [[1, 2], [3, 0]])
    assert output["sum"].tolist() == [3, 3]


@pytest.mark.parametrize("collate", ["stack", "pad"])
def test_workers_may_warm_up(torch, served, collate):
    options = {"pad_to": (4, 8), "mask": "mask"} if collate == "pad" else {}
    streamer = served("Sequences", SEQUENCES, collate=collate, warmup=(1, 8), workers=2, **options)
    streamer.wait_ready(LONG)
    item = {"ids": torch.arange(3)}
    if collate == "stack":
        item["mask"] = torch.ones(3, dtype=torch.int64)
    assert streamer.predict([item])[0]["sum"].item() == 3
    assert streamer.stats().batches == 1


def test_what_a_model_thinks_of_zeros_does_not_matter(torch, served):
    streamer = served("Summed", warmup=(2,))
    streamer.wait_ready(LONG)
    with pytest.raises(OutputSizeMismatch):
        streamer.predict([torch.zeros(3)] * 2)


# ----------------------------------------------------------------- bad items


@pytest.mark.parametrize(
    ("item", "error", "message"),
    [
        ("[1.0, 2.0, 3.0]", TypeError, "input 'x' of an item must be a tensor or an array"),
        ("torch.zeros(3, dtype=torch.float64)", TypeError, "is float64, the model wants float32"),
        ("numpy.zeros(3)", TypeError, "is float64, the model wants float32"),
        ("numpy.zeros(3, dtype='>f4')", TypeError, "the model wants float32"),
        ("numpy.array(['a'] * 3)", TypeError, "the model wants float32"),
        ("torch.zeros(1, 3)", TypeError, r"shape \(1, 3\), the model wants \(3,\)"),
        ("torch.zeros(4)", ValueError, r"shape \(4,\), the model wants \(3,\)"),
        ("torch.zeros(0)", ValueError, r"shape \(0,\), the model wants \(3,\)"),
        ("torch.zeros(3).to_sparse()", TypeError, "special"),
        ("torch.zeros(3, device='meta')", TypeError, "meta"),
        ("{'x': torch.zeros(3)}", TypeError, "must be a tensor or an array"),
        ("None", TypeError, "got NoneType"),
    ],
)
def test_an_item_that_is_none_of_the_models_is_refused(torch, served, item, error, message):
    import numpy

    streamer = served()
    bad = eval(item, {"torch": torch, "numpy": numpy})
    with pytest.raises(error, match=message):
        streamer.predict([torch.zeros(3), bad])
    assert streamer.predict([torch.zeros(3)])[0].tolist() == [1, 1, 1]
    assert streamer.stats().submitted == 1


def test_a_structure_that_is_none_of_the_models_is_refused(torch, served):
    pairs = served("Pairs", PAIRS)
    with pytest.raises(TypeError, match="an item must be a tuple of 2 tensors, 'a', 'b', got"):
        pairs.predict([torch.zeros(3)])
    with pytest.raises(ValueError, match="length is 2 in another input"):
        pairs.predict([(torch.zeros(2), torch.zeros(3))])
    with pytest.raises(ValueError, match="with length of 1 to 16"):
        pairs.predict([(torch.zeros(17), torch.zeros(17))])
    dicts = served("Sequences", SEQUENCES, collate="pad", mask="mask")
    with pytest.raises(TypeError, match=r"a dict of 1 tensors, 'ids', got \['id'\]"):
        dicts.predict([{"id": torch.zeros(3, dtype=torch.int64)}])
    with pytest.raises(ValueError, match="sequence of 1 to 16"):
        dicts.predict([{"ids": torch.zeros(0, dtype=torch.int64)}])


def test_nan_is_a_number_like_any(torch, served):
    (output,) = served().predict([torch.tensor([float("nan"), 1, 2])])
    assert output.isnan().tolist() == [True, False, False]


# ------------------------------------------------------------- models that fail


def test_what_the_model_raises_reaches_only_who_asked_for_it(torch, served):
    streamer = served("Picky")
    good = [streamer.submit([torch.zeros(3)]) for _ in range(3)]
    bad = streamer.submit([torch.full((3,), 13.0)])
    with pytest.raises(RuntimeError, match="13 is bad luck"):
        bad.result(LONG)
    for future in good:
        assert future.result(LONG)[0].tolist() == [1, 1, 1]
    assert streamer.predict([torch.zeros(3)])[0].tolist() == [1, 1, 1]


def test_without_memory_the_guilty_gets_a_memory_error(torch, served):
    streamer = served("Picky")
    good, bad = (streamer.submit([torch.full((3,), value)]) for value in (0.0, 17.0))
    with pytest.raises(MemoryError, match="memory"):
        bad.result(LONG)
    assert good.result(LONG)[0].tolist() == [1, 1, 1]


def test_too_few_outputs_are_a_mismatch(torch, served):
    streamer = served("Summed")
    with pytest.raises(OutputSizeMismatch) as caught:
        streamer.predict([torch.zeros(3)] * 2)
    assert (caught.value.expected, caught.value.received) == (2, 1)


# ----------------------------------------------------------------- life cycle


def test_a_deadline_ends_a_request_that_runs(torch, served):
    streamer = served("Slow")
    with pytest.raises(RequestTimeout):
        streamer.predict([torch.zeros(3)], timeout=0.001)
    with pytest.raises(RequestTimeout):
        streamer.submit([torch.zeros(3)], timeout=0.001).result(LONG)


def test_close_answers_what_is_queued(torch, served):
    streamer = served("Slow", batch_size=1)
    futures = [streamer.submit([torch.zeros(3)]) for _ in range(3)]
    streamer.close()
    assert all(future.done() for future in futures)
    assert futures[-1].result()[0].tolist() == [1, 1, 1]
    with pytest.raises(StreamerClosed):
        streamer.predict([torch.zeros(3)])


def test_close_without_drain_ends_what_is_queued(torch, served):
    streamer = served("Slow", batch_size=1)
    first = streamer.submit([torch.zeros(3)])
    eventually(first.running)
    second = streamer.submit([torch.zeros(3)])
    streamer.close(drain=False)
    assert first.result()[0].tolist() == [1, 1, 1]
    with pytest.raises(StreamerClosed):
        second.result()


def test_items_are_let_go_when_they_were_run(torch, served):
    import weakref

    streamer = served()
    item = torch.zeros(3)
    watched = weakref.ref(item)
    future = streamer.submit([item])
    del item
    future.result(LONG)
    eventually(lambda: watched() is None)


def test_items_of_an_abandoned_request_are_let_go(torch, served):
    import weakref

    streamer = served("Slow", batch_size=1)
    running = streamer.submit([torch.zeros(3)])
    eventually(running.running)
    item = torch.zeros(3)
    watched = weakref.ref(item)
    assert streamer.submit([item]).cancel()
    del item, running
    eventually(lambda: watched() is None)


def test_a_forgotten_streamer_answers_and_goes(torch, model):
    streamer = ThreadedStreamer(model("Slow"), 8)
    future = streamer.submit([torch.zeros(3)])
    del streamer
    assert future.result(LONG)[0].tolist() == [1, 1, 1]


# ------------------------------------------------------------------- settings


def test_a_batch_larger_than_the_models_is_refused(torch, served):
    with pytest.raises(ValueError, match="batch_size=9 is more than the 8 items"):
        served(batch_size=9)
    streamer = served()
    with pytest.raises(ValueError, match="batch_size=9"):
        streamer.configure(batch_size=9)
    streamer.configure(batch_size=4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"collate": "join"}, "collate must be one of 'stack', 'pad', not 'join'"),
        ({"pad_side": "top"}, "pad_side must be one of"),
        ({"output": "list"}, "output must be one of"),
        ({"workers": 0}, "workers must be an int of at least 1, not 0"),
        ({"intra_op_threads": 0}, "intra_op_threads must be"),
        ({"pad_to": (8, 4)}, "pad_to must be ascending"),
        ({"pad_value": "x"}, "pad_value must be a number"),
        ({"pad_value": {"y": 1}}, "no input 'y'"),
        ({"mask": "x"}, "needs collate='pad'"),
        ({"device": "tpu"}, "device must be"),
    ],
)
def test_wrong_settings_are_named(model, options, message):
    with pytest.raises(ValueError, match=message):
        model(**options)


def test_made_inputs_must_be_the_models(model):
    with pytest.raises(ValueError, match="mask must be one of the inputs"):
        model("Sequences", SEQUENCES, collate="pad", mask="attention")
    with pytest.raises(ValueError, match=r"lengths='mask' must have the shape \('batch',\)"):
        model("Sequences", SEQUENCES, collate="pad", lengths="mask")


def test_files_that_are_no_models_are_refused(torch, files, tmp_path):
    import shutil

    from service_streamer.torch import ModelFileError, NativeModel, SidecarError

    with pytest.raises(FileNotFoundError, match="there is no model file"):
        NativeModel(tmp_path / "missing.pt2", signature=FLOATS)
    text = tmp_path / "text.pt2"
    text.write_text("no model")
    with pytest.raises(ModelFileError, match="is no model file, or only a part"):
        NativeModel(text, signature=FLOATS)
    half = tmp_path / "half.pt"
    half.write_bytes(files("Floats").read_bytes()[:-50])
    with pytest.raises(ModelFileError, match="only a part of one"):
        NativeModel(half, signature=FLOATS)
    weights = tmp_path / "weights.pt"
    torch.save({"a": torch.zeros(3)}, weights)
    with pytest.raises(ModelFileError, match="neither a package of AOTInductor nor"):
        NativeModel(weights, signature=FLOATS)
    bare = tmp_path / "bare.pt"
    shutil.copy(files("Floats"), bare)
    with pytest.raises(SidecarError, match="signature="):
        NativeModel(bare)
    with pytest.raises(ModelFileError, match="is compiled for cuda, not for cpu"):
        NativeModel(bare, signature=changed(FLOATS, device="cuda"))


def test_a_package_for_another_processor_is_refused(files, monkeypatch):
    from service_streamer.torch import ModelFileError, NativeModel, _file

    monkeypatch.setattr(_file, "_processor_flags", lambda: {"sse2"})
    with pytest.raises(ModelFileError, match="is compiled for processors with"):
        NativeModel(files("Floats", "pt2"), signature=FLOATS)


# -------------------------------------------------------------- other processes


def test_a_forked_child_has_a_model_of_its_own(files, child):
    done = child(
        """
        import os, sys, signal
        import torch
        from native_models import FLOATS
        from service_streamer import ThreadedStreamer
        from service_streamer.torch import NativeModel

        model = NativeModel(sys.argv[1], signature=FLOATS, intra_op_threads=2)
        streamer = ThreadedStreamer(model, 8)
        ask = lambda: streamer.predict([torch.zeros(3)])[0].tolist()
        assert ask() == [1, 1, 1]
        pid = os.fork()
        if pid == 0:
            signal.alarm(30)
            assert ask() == [1, 1, 1]
            assert model([torch.zeros(3)])[0].tolist() == [1, 1, 1]
            streamer.close()
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        assert status == 0, status
        assert ask() == [1, 1, 1]
        print("both answered")
        """,
        str(files("Floats")),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert "both answered" in done.stdout


@pytest.mark.parametrize("ending", ["pass", "streamer.close()", "del streamer", "raise SystemExit"])
def test_the_interpreter_ends_with_batches_under_way(files, child, ending):
    done = child(
        f"""
        import sys
        import torch
        from native_models import FLOATS
        from service_streamer import ThreadedStreamer
        from service_streamer.torch import NativeModel

        model = NativeModel(sys.argv[1], signature=FLOATS)
        streamer = ThreadedStreamer(model, 1)
        futures = [streamer.submit([torch.zeros(3)]) for _ in range(3)]
        {ending}
        """,
        str(files("Slow")),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stderr == ""


def test_other_threads_keep_their_number_of_threads(torch, served, threads):
    before = torch.get_num_threads()
    streamer = served(workers=2, intra_op_threads=before + 1)
    streamer.wait_ready(LONG)
    threads.run(torch.get_num_threads)
    assert threads.join() == [before]
    assert torch.get_num_threads() == before


def test_callers_and_closing_meet_at_any_time(torch, model, threads):
    for _ in range(10):
        streamer = ThreadedStreamer(model(workers=2), 4)
        ready = threading.Barrier(3)

        def ask(streamer=streamer, ready=ready):
            ready.wait()
            for number in range(1000):
                try:
                    (output,) = streamer.predict([torch.full((3,), float(number))])
                except StreamerClosed:
                    return number
                assert output[0].item() == 3 * number + 1
            return 1000

        for _ in range(2):
            threads.run(ask)
        ready.wait()
        streamer.close(drain=False)
    assert all(isinstance(count, int) for count in threads.join())
