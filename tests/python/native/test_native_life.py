"""NativeModel: deadlines, closing, forks, the end of the interpreter."""

import os
import sys
import threading

import pytest
from waits import LONG, eventually

from service_streamer import (
    StreamerClosed,
    ThreadedStreamer,
)

pytest_plugins = ["native_fixtures"]
pytestmark = pytest.mark.torch


# ------------------------------------------------------------------- life cycle


@pytest.fixture
def busy(torch, served):
    """A streamer whose model is busy for many seconds, and the futures of its requests."""
    streamer = served("Slow", batch_size=1)
    futures = [streamer.submit([torch.zeros(3)]) for _ in range(100)]
    eventually(lambda: futures[0].running() or futures[0].done())
    return streamer, futures


def test_items_are_released_after_their_run(torch, served):
    import weakref

    streamer = served()
    item = torch.zeros(3)
    watched = weakref.ref(item)
    future = streamer.submit([item])
    del item
    future.result(LONG)
    eventually(lambda: watched() is None)


def test_items_of_an_abandoned_request_are_released(torch, busy):
    import weakref

    streamer, futures = busy
    item = torch.zeros(3)
    watched = weakref.ref(item)
    assert streamer.submit([item]).cancel()
    del item
    for future in futures:
        future.cancel()
    eventually(lambda: watched() is None)


def test_a_forgotten_streamer_answers_and_is_destroyed(torch, model):
    streamer = ThreadedStreamer(model("Slow"), 8)
    future = streamer.submit([torch.zeros(3)])
    del streamer
    assert future.result(LONG)[0].tolist() == [1, 1, 1]


# ------------------------------------------------------------------- other processes


def test_a_forked_child_has_its_own_model(files, child):
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
def test_the_interpreter_ends_with_batches_in_flight(files, child, ending):
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


def test_the_interpreter_ends_while_a_model_runs_forever(files, child):
    """The model thread goes on, so no destructor of a library may run: `abort` simulates one."""
    done = child(
        """
        import atexit, ctypes, sys
        # the last of them to be called, for it is the first to be registered
        atexit.register(lambda: print(type(futures[0].exception(0)).__name__))
        import torch
        from native_models import FLOATS
        from waits import eventually
        from service_streamer import StreamerClosed, ThreadedStreamer
        from service_streamer.torch import NativeModel

        model = NativeModel(sys.argv[1], signature=FLOATS, workers=2)
        streamer = ThreadedStreamer(model, 1)
        futures = [streamer.submit([torch.full((3,), 13.0)]) for _ in range(2)]
        eventually(lambda: all(future.running() for future in futures))
        libc = ctypes.CDLL(None)
        libc["__cxa_atexit"](ctypes.cast(libc.abort, ctypes.c_void_p), None, None)
        sys.exit(7)
        """,
        str(files("Endless")),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, "StreamerClosed\n", "")


@pytest.mark.parametrize(
    "work",
    [
        "model._module.load(model._make_capsule())",
        "model._path = 'nowhere.pt'; model._module.load(model._make_capsule())",
        "kept.append(model(items))",
        "kept.append(_torch.normalize_images(images, [1.0] * 3, [0.0] * 3, False))",
        "kept.append(_torch.Groups(batcher, [images], [0]).collate(0))",
    ],
    ids=["load", "fail to load", "run", "images", "collate"],
)
def test_the_interpreter_ends_while_a_thread_works_without_the_gil(files, child, work):
    """During finalization, Python ends a thread that asks for the GIL."""
    done = child(
        f"""
        import contextlib, os, sys, threading, time
        import torch
        from native_models import FLOATS
        from service_streamer import _torch
        from service_streamer.torch import BatchedModel, NativeModel

        model = NativeModel(sys.argv[1], signature=FLOATS)
        batcher = _torch.Batcher(BatchedModel(abs)._options)
        # Torch gives up the GIL to destroy a tensor, and ends the process where it cannot have it
        # back: so the thread destroys none.
        images = torch.zeros(4, 300, 300, 3, dtype=torch.uint8)
        items = [torch.zeros(3)]
        kept = []

        def work():
            with contextlib.suppress(RuntimeError):
                {work}

        def work_on():
            work()
            working.set()
            while len(kept) < 30:
                work()

        class Last:
            # what `sys` has goes long after the interpreter has begun to end
            def __init__(self, thread):
                self.task = f"/proc/self/task/{{thread.native_id}}"
            def __del__(self, is_there=os.access, clock=time.monotonic, write=os.write):
                patience = clock() + 5  # from Python 3.14 on the thread stays where it is
                while is_there(self.task, 0) and clock() < patience:
                    pass
                write(1, b"ended")

        working = threading.Event()
        thread = threading.Thread(target=work_on, daemon=True)
        thread.start()
        working.wait()
        sys.last = Last(thread)
        """,
        str(files("Slow" if work.startswith("kept.append(model") else "Floats")),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.stdout, done.stderr) == ("ended", "")


def test_other_threads_keep_their_number_of_intra_op_threads(torch, served, threads):
    before = torch.get_num_threads()
    streamer = served(workers=2, intra_op_threads=before + 1)
    streamer.wait_ready(LONG)
    threads.run(torch.get_num_threads)
    assert threads.join() == [before]
    assert torch.get_num_threads() == before


def test_close_may_happen_at_any_time(torch, model, threads):
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
