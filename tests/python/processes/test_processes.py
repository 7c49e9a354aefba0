"""A Streamer's workers: how they start and what they get."""

import multiprocessing
import os

import pytest
from process_models import Model, double
from scripts import SUPPORT
from told import told
from waits import LONG

from service_streamer import RequestTimeout

pytestmark = pytest.mark.slow

METHODS = ["spawn", "fork", "forkserver"]

every_method = pytest.mark.parametrize("method", METHODS)


def pids(streamer):
    return [worker.pid for worker in streamer.stats().worker_processes]


@every_method
def test_a_function_runs_in_another_process(process_streamers, method):
    streamer = process_streamers(double, mp_start_method=method)
    assert streamer.predict([1, 2, 3]) == [2, 4, 6]
    assert pids(streamer) != [os.getpid()]


@every_method
def test_a_managed_model_gets_its_arguments_and_its_device(process_streamers, method):
    streamer = process_streamers(
        Model,
        mp_start_method=method,
        cuda_devices=(3, "GPU-8932f937"),
        model_init_args=["weights"],
        model_init_kwargs={"size": 5},
    )
    (seen,) = streamer.predict(["item"])
    assert seen["item"] == "item"
    assert (seen["args"], seen["kwargs"]) == (("weights",), {"size": 5})
    assert (seen["gpu_id"], seen["device"]) == (3, "3")
    assert seen["pid"] in pids(streamer)


def test_devices_go_round_and_are_reported(process_streamers):
    streamer = process_streamers(worker_num=3, cuda_devices=("0", "MIG-1"))
    streamer.wait_ready(LONG)
    devices = [worker.device for worker in streamer.stats().worker_processes]
    assert sorted(devices) == ["0", "0", "MIG-1"]


@every_method
def test_cores_are_divided_unless_the_user_says_otherwise(program, method):
    code = f"""
        import os
        from process_models import Model
        from service_streamer import Streamer

        if __name__ == "__main__":
            with Streamer(Model, 8, worker_num=2, mp_start_method={method!r}) as streamer:
                print(streamer.predict([1])[0]["threads"])
        """
    tests = {"PYTHONPATH": SUPPORT}
    own = max(1, len(os.sched_getaffinity(0)) // 2)
    assert program(code, env=os.environ | tests).stdout == f"{own}\n"
    user = tests | {"OMP_NUM_THREADS": "7"}
    assert program(code, env=os.environ | user).stdout == "7\n"


# What makes a forkserver import the main module before it serves, as since Python 3.13.8.
PRELOADING = """
        from multiprocessing import spawn

        def get_preparation_data(name, get=spawn.get_preparation_data):
            data = get(name)
            return data | {"main_path": data.get("init_main_from_path")}

        spawn.get_preparation_data = get_preparation_data
"""

by_import = pytest.mark.parametrize(
    ("method", "first"),
    [("spawn", ""), ("forkserver", ""), ("forkserver", PRELOADING)],
    ids=["spawn", "forkserver", "forkserver that preloads"],
)


@by_import
def test_the_environment_is_there_before_the_main_module_is_imported(program, method, first):
    done = program(
        f"""
        {first}
        import os
        device = os.environ.get("CUDA_VISIBLE_DEVICES")
        from service_streamer import Streamer

        def predict(batch):
            return [(__name__, device)] * len(batch)

        if __name__ == "__main__":
            with Streamer(predict, 8, cuda_devices=[5], mp_start_method={method!r}) as streamer:
                print(*streamer.predict([1]), device)
        """
    )
    assert done.stdout == "('__mp_main__', '5') None\n"


@by_import
def test_an_unguarded_main_module_is_an_error_at_once_and_no_fork_bomb(
    program, tmp_path, method, first
):
    done = program(
        f"""
        {first}
        open({str(tmp_path / "imports")!r}, "a").write("import\\n")
        from service_streamer import Streamer
        Streamer(len, 8, mp_start_method={method!r}).predict([1])
        """,
        check=False,
    )
    assert done.returncode == 1
    head, _, message = done.stderr.partition("WorkerInitError: ")
    file = tmp_path / "program.py"
    lines = file.read_text().splitlines()
    (line,) = (n for n, text in enumerate(lines, 1) if "Streamer(len" in text)
    assert head.count("Traceback") == 1  # of the call
    text = (
        f"a worker process imports the main module again, and line {line} of {file} creates a "
        'Streamer: create it below `if __name__ == "__main__":`'
    )
    assert message == told(text, "no-main-guard") + "\n"
    assert (tmp_path / "imports").read_text() == "import\n" * 2


def test_a_module_that_has_the_model_and_creates_the_streamer_is_named(program, tmp_path):
    (tmp_path / "web_app.py").write_text(
        "from service_streamer import Streamer\n"
        "def predict(batch): return batch\n"
        "streamer = Streamer(predict, 8)\n"
    )
    done = program(
        'if __name__ == "__main__": import web_app; web_app.streamer.predict([1])', check=False
    )
    text = (
        f"a worker process imports the module web_app for the model, and line 3 of "
        f"{tmp_path / 'web_app.py'} creates a Streamer: move the model to a module of its own, "
        "which this one imports"
    )
    assert done.stderr.rpartition("WorkerInitError: ")[2] == told(text, "no-main-guard") + "\n"


def test_what_a_session_without_a_file_defines_travels_with_cloudpickle(child):
    pytest.importorskip("cloudpickle")
    done = child(
        """
        from service_streamer import Streamer

        class Answers:
            class Answer(tuple):
                pass

        Answer = Answers.Answer

        def predict(batch):
            return [Answer([4 * item]) for item in batch]

        with Streamer(predict, 8) as streamer:
            print(streamer.predict([1]), type(streamer.predict([1])[0]).__qualname__)
        """
    )
    assert done.stdout == "[(4,)] Answers.Answer\n"


def test_warm_up_comes_before_a_worker_is_ready(process_streamers, process_journal):
    def predict(batch):
        process_journal.append(batch)
        return batch

    streamer = process_streamers(predict, batch_size=2, warmup=["a", "b", "c"])
    streamer.wait_ready(LONG)
    assert process_journal.all() == [["a", "b"], ["c"]]
    assert streamer.predict(["d"]) == ["d"]
    assert streamer.stats().submitted == 1


def test_wait_ready_waits_for_every_worker(process_streamers, process_gate):
    streamer = process_streamers(process_gate, warmup=["load"], worker_num=2)
    process_gate.wait_entered()
    process_gate.wait_entered()
    with pytest.raises(RequestTimeout, match=r"not ready after 0.05 s"):
        streamer.wait_ready(0.05)
    process_gate.open()
    streamer.wait_ready(LONG)
    states = [worker.state for worker in streamer.stats().worker_processes]
    assert states == ["ready", "ready"]


def test_the_constructor_may_wait_for_the_workers(process_streamers):
    streamer = process_streamers(double, worker_num=2, wait_for_worker_ready=True)
    assert [worker.state for worker in streamer.stats().worker_processes] == ["ready"] * 2


def test_requests_that_come_before_a_worker_is_ready_wait_for_it(process_streamers, process_gate):
    streamer = process_streamers(process_gate, warmup=["load"], batch_size=4)
    process_gate.wait_entered()
    futures = [streamer.submit([i]) for i in range(4)]
    process_gate.open()
    assert [future.result(LONG) for future in futures] == [[2 * i] for i in range(4)]
    assert streamer.stats().batch_sizes == {4: 1}


@every_method
def test_a_worker_is_a_process_of_multiprocessing(process_streamers, method):
    pytest.importorskip("cloudpickle")

    def predict(batch):
        me, parent = multiprocessing.current_process(), multiprocessing.parent_process()
        helper = multiprocessing.get_context("fork").Process(target=os.getpid)
        helper.start()
        helper.join()
        return [(me.name, me.daemon, parent.pid, parent.is_alive(), helper.exitcode)]

    streamer = process_streamers(predict, mp_start_method=method)
    ((name, daemon, parent, alive, exit_code),) = streamer.predict([1])
    assert (name, daemon) == ("service-streamer-worker-0", False)
    assert (parent, alive, exit_code) == (os.getpid(), True, 0)
    assert multiprocessing.active_children() == []


@every_method
def test_what_a_worker_prints_is_seen(program, method):
    done = program(
        f"""
        import atexit, sys
        from service_streamer import Streamer
        from service_streamer._processes import pool

        pool.GRACE = 60  # none is killed while it still writes

        def predict(batch):
            print("out", *batch)
            print("err", *batch, file=sys.stderr)
            return batch

        if __name__ == "__main__":
            with Streamer(predict, 8, mp_start_method={method!r}) as streamer:
                streamer.predict([1])
        """
    )
    assert (done.stdout, done.stderr) == ("out 1\n", "err 1\n")


@every_method
def test_a_streamer_in_a_worker(program, method):
    done = program(
        f"""
        from service_streamer import ManagedModel, Streamer

        def absolute(batch):
            return [abs(item) for item in batch]

        class Outer(ManagedModel):
            def init_model(self):
                self.model = Streamer(absolute, 8, worker_timeout=100, mp_start_method={method!r})

            def predict(self, batch):
                return self.model.predict(batch)

        if __name__ == "__main__":
            with Streamer(Outer, 8, worker_timeout=100, mp_start_method={method!r}) as streamer:
                print(streamer.predict([-1, 2]))
        """
    )
    assert done.stdout == "[1, 2]\n"
    assert done.stderr == ""
