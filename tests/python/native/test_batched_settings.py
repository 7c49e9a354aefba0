"""BatchedModel: wrong settings and missing dependencies."""

import sys

import pytest

from service_streamer import ThreadedStreamer

pytest_plugins = ["batched_fixtures"]
pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"collate": "join"},
            ValueError,
            "collate must be one of 'stack', 'pad', 'pack', not 'join'",
        ),
        ({"pad_side": "top"}, ValueError, "pad_side must be one of"),
        ({"output": "list"}, ValueError, "output must be one of 'tensor', 'cpu', 'numpy'"),
        ({"pad_value": "0"}, ValueError, "pad_value must be a number, not '0'"),
        ({"pad_value": {"x": None}}, ValueError, "pad_value must be a number, not None"),
        ({"pad_to": (8, 4)}, ValueError, "pad_to must be ascending"),
        ({"batch_sizes": (0,)}, ValueError, "batch_sizes must be an int of at least 1"),
        ({"mask": "mask"}, ValueError, "mask='mask' needs collate='pad', not 'stack'"),
        ({"lengths": "n"}, ValueError, "lengths='n' needs collate='pad'"),
        ({"trim": True}, ValueError, "trim=True needs collate='pad' or 'pack', not 'stack'"),
        ({"collate": "pack", "mask": "m"}, ValueError, "mask='m' needs collate='pad', not 'pack'"),
        ({"collate": "pack", "pad_value": 1}, ValueError, "pad_value=1 needs collate='pad'"),
        ({"collate": "pack", "pad_to": (8,)}, ValueError, r"pad_to=\(8,\) needs collate='pad'"),
        ({"collate": "pack", "batch_sizes": [2]}, ValueError, "batch_sizes=.* needs collate='pad'"),
        ({"collate": "pack", "pad_side": "left"}, ValueError, "pad_side='left' needs"),
        ({"collate": "pack"}, TypeError, "<lambda> has no 'cu_seqlens'; add it, or use"),
        ({"collate": "pad", "trim": "x"}, ValueError, "trim must be True, False or names"),
        ({"collate": "pad", "trim": [0]}, ValueError, "trim must be True, False or names"),
        ({"collate": "pad", "mask": "m", "lengths": "m"}, ValueError, "must have different names"),
        ({"device": "gpu"}, ValueError, "device must be .*, not 'gpu'"),
        ({"device": "meta"}, ValueError, "device must be"),
        ({"device": "cuda:99"}, ValueError, "device='cuda:99' .* torch sees"),
        ({"key": "bucket"}, TypeError, "key must be a function of an item, not 'bucket'"),
    ],
)
def test_wrong_settings_are_refused(batched, options, error, message):
    with pytest.raises(error, match=message):
        batched(lambda x: x, **options)


def test_a_model_that_is_not_a_callable_on_batches_is_refused(batched):
    with pytest.raises(TypeError, match=r"model.*int"):
        batched(3)
    with pytest.raises(ValueError, match=r"collate.*'stack', 'pad'.*''"):
        ThreadedStreamer(lambda x: x, 8, collate="")
    with pytest.raises(TypeError, match="BatchedModel"):
        ThreadedStreamer(batched(lambda x: x), 8, collate="pad")


def test_a_missing_torch_is_named(monkeypatch):
    monkeypatch.setattr("service_streamer.torch._batching._loaded", None)
    monkeypatch.setitem(sys.modules, "torch", None)
    ThreadedStreamer(print, 8).close()  # needs none
    with pytest.raises(ImportError, match="torch"):
        ThreadedStreamer(print, 8, collate="stack")
