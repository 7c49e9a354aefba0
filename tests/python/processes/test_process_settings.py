"""What a Streamer is made of: the original's signature, and bad settings with clear errors."""

import inspect
import os
import pickle
import re
import sys
import threading

import pytest
from scripts import SUPPORT
from thread_models import double

from service_streamer import ManagedModel, SerializationError, Streamer, ThreadedStreamer
from service_streamer._models.model import check_model, pack


def test_it_has_the_options_and_methods_of_a_threaded_streamer():
    theirs = inspect.signature(ThreadedStreamer).parameters
    ours = inspect.signature(Streamer).parameters
    # batches of tensors are made by a BatchedModel, which a Streamer is given as it is; outputs of
    # a worker process are copied in any case, and no async function runs there
    without = {"predict_function", "collate", "device", "copy_outputs", "max_concurrent_batches"}
    for name, parameter in theirs.items():
        if name not in without:
            assert ours[name].default == parameter.default
    for name, member in inspect.getmembers(ThreadedStreamer, inspect.isfunction):
        if not name.startswith("_"):
            assert getattr(Streamer, name) is member, f"{name} is written twice"


NAN = float("nan")


WRONG_SETTINGS = [
    ("batch_size", 0, ValueError),
    ("max_latency", -1, ValueError),
    ("worker_num", 0, ValueError),
    ("worker_num", -2, ValueError),
    ("worker_num", 1.5, ValueError),
    ("worker_num", None, ValueError),
    ("mp_start_method", "thread", ValueError),
    ("mp_start_method", None, ValueError),
    ("cuda_devices", (), ValueError),
    ("cuda_devices", "0,1", TypeError),
    ("cuda_devices", (0, "one"), ValueError),
    ("model_init_args", "weights.pt", TypeError),
    ("model_init_args", 5, TypeError),
    ("model_init_kwargs", ["path"], TypeError),
    ("model_init_kwargs", {1: 2}, TypeError),
    ("warmup", "item", TypeError),
    ("warmup", 1, TypeError),
    ("retries", -1, ValueError),
    ("retries", 0.5, ValueError),
    ("worker_hang_timeout", 0, ValueError),
    ("worker_hang_timeout", -1, ValueError),
    ("worker_hang_timeout", NAN, ValueError),
    ("worker_timeout", -1, ValueError),
    ("address", "", ValueError),
    ("address", "@", ValueError),
    ("address", "x" * 200, ValueError),
    ("address", 5005, TypeError),
]


@pytest.mark.parametrize(("name", "value", "error"), WRONG_SETTINGS)
def test_a_wrong_setting_is_named(name, value, error):
    with pytest.raises(error, match=name):
        Streamer(double, **{"batch_size": 8, name: value})


def test_with_a_wrong_setting_nothing_is_started(child):
    child(
        """
        import os, sys, threading
        sys.path[:0] = sys.argv[1:]
        from test_process_settings import WRONG_SETTINGS, Streamer, double

        def open_descriptors():
            return os.listdir("/proc/self/fd")

        before = open_descriptors()
        for name, value, error in WRONG_SETTINGS:
            try:
                Streamer(double, **{"batch_size": 8, name: value})
            except error:
                assert threading.active_count() == 1, name
                assert open_descriptors() == before, name
            else:
                raise AssertionError(name)
        """,
        os.path.dirname(__file__),
        SUPPORT,
    )


@pytest.mark.parametrize("address", ["", "@", "x" * 200, "a\0b"])
def test_connect_refuses_what_is_no_address(address):
    with pytest.raises(ValueError, match="address"):
        Streamer.connect(address)


class Model(ManagedModel):
    pass


# ---------------------------------------------------------------- the model's journey


def packed(source, args=None, kwargs=None, warmup=None):
    return pack(check_model(source, args, kwargs, warmup))


def test_a_function_and_a_class_travel_by_their_names():
    model = pickle.loads(packed(Model, [1], {"b": 2}, ["warm"]))
    assert (model.source, model.args, model.kwargs) == (Model, (1,), {"b": 2})
    assert model.warmup == ("warm",)
    assert pickle.loads(packed(double)).source is double


@pytest.fixture
def _no_cloudpickle(monkeypatch):
    for name in ("cloudpickle", "service_streamer._models.session_model"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.usefixtures("_no_cloudpickle")
def test_what_cannot_be_pickled_is_an_error_that_says_what_to_do():
    with pytest.raises(SerializationError) as info:
        Streamer(lambda batch: batch, 8)
    message = str(info.value)
    for word in ("<lambda>", "top level", "cloudpickle", 'mp_start_method="fork"'):
        assert word in message
    assert info.value.__cause__ is not None


def test_lambdas_and_local_classes_travel_with_cloudpickle():
    pytest.importorskip("cloudpickle")

    class Local(ManagedModel):
        pass

    factor = 3
    model = pickle.loads(packed(lambda batch: [factor * item for item in batch]))
    assert model.source([2]) == [6]
    assert issubclass(pickle.loads(packed(Local)).source, ManagedModel)


def test_what_nothing_can_pickle_is_an_error_that_says_what_to_do():
    pytest.importorskip("cloudpickle")
    lock = threading.Lock()
    with pytest.raises(SerializationError, match=re.escape("`init_model` of a ManagedModel")):
        Streamer(lambda batch: [lock, *batch], 8)
    with pytest.raises(SerializationError, match="lock"):
        Streamer(Model, 8, model_init_args=[lock])


@pytest.mark.usefixtures("_no_cloudpickle")
def test_a_function_of_a_main_module_without_a_file_is_refused(child):
    child(
        """
        import sys
        sys.modules["cloudpickle"] = None
        from service_streamer import Streamer, SerializationError

        def predict(batch):
            return batch

        try:
            Streamer(predict, 8)
        except SerializationError as error:
            assert "main module" in str(error)
        else:
            raise AssertionError("accepted")
        """
    )


def test_a_managed_model_gets_its_device_and_is_warmed_up():
    made = []

    class Warm(ManagedModel):
        def init_model(self, *args, **kwargs):
            made.append((self.gpu_id, args, kwargs))

        def predict(self, batch):
            made.append(batch)
            return batch

        @staticmethod
        def set_gpu_id(gpu_id=None):
            pass

    model = check_model(Warm, [1], {"b": 2}, [1, 2, 3])
    assert model.load("GPU-1", 2)([4]) == [4]
    assert made == [("GPU-1", (1,), {"b": 2}), [1, 2], [3], [4]]
