"""Which GPU and how many threads a worker process gets."""

import pytest

from service_streamer._placement.devices import (
    THREAD_VARIABLES,
    check_devices,
    device_of,
    environment,
)
from service_streamer._placement.places import Place

UUID = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
MIG = "MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/1/0"


@pytest.mark.parametrize(
    "devices",
    [(0,), (0, 1, 2, 3), [3], ("0", "1"), (UUID, MIG), ("GPU-8932f937",), ("0,1", "2,3"), ("",)],
)
def test_devices_by_number_uuid_and_mig_string(devices):
    assert check_devices(devices) == tuple(devices)


def test_no_devices_is_the_choice_of_the_environment():
    assert check_devices(None) is None
    assert device_of(None, 3) is None


def test_numbers_of_numpy_and_other_iterables():
    numpy = pytest.importorskip("numpy")
    assert check_devices(numpy.arange(2)) == (0, 1)
    assert check_devices(range(2)) == (0, 1)
    assert check_devices({5}) == (5,)


@pytest.mark.parametrize(
    "device", [-1, True, 1.0, None, "cuda:0", "gpu0", "GPU-", " 1", "0;1", b"0"]
)
def test_what_is_no_device_is_named(device):
    with pytest.raises(ValueError, match="cuda_devices") as info:
        check_devices((0, device))
    assert repr(device) in str(info.value)


def test_an_empty_list_is_refused_with_a_hint():
    with pytest.raises(ValueError, match=r"at least one device.*None"):
        check_devices(())


@pytest.mark.parametrize("devices", [3, "0,1", b"01"])
def test_what_is_no_sequence_is_named(devices):
    with pytest.raises(TypeError, match="cuda_devices must be a sequence"):
        check_devices(devices)


def test_thread_counts_of_the_user_stay():
    own = environment(None, Place(1), {"OPENBLAS_NUM_THREADS": "7"})
    assert "OPENBLAS_NUM_THREADS" not in own
    assert set(own) == set(THREAD_VARIABLES) - {"OPENBLAS_NUM_THREADS"}
    # the others follow this one by themselves
    assert environment(None, Place(1), {"OMP_NUM_THREADS": "7"}) == {}


def test_threads_that_are_given_win_over_the_environment():
    own = environment(None, Place(3, is_chosen=True), {"OMP_NUM_THREADS": "7"})
    assert own == dict.fromkeys(THREAD_VARIABLES, "3")


@pytest.mark.parametrize(("device", "variable"), [(2, "2"), (UUID, UUID), ("", "")])
def test_a_worker_sees_its_device_only(device, variable):
    own = environment(device, Place(1), {"CUDA_VISIBLE_DEVICES": "5"})
    assert own["CUDA_VISIBLE_DEVICES"] == variable


def test_without_devices_the_variable_is_inherited():
    assert "CUDA_VISIBLE_DEVICES" not in environment(None, Place(1), {"CUDA_VISIBLE_DEVICES": "5"})
