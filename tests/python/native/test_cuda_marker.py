"""Tests that need a GPU are skipped without one, unless a GPU is expected."""

import pytest
from gpus import demand_gpu


@pytest.mark.parametrize("expected", [None, "0", "1"])
def test_cuda_tests_run_with_a_gpu(expected):
    demand_gpu(True, expected)


@pytest.mark.parametrize("expected", [None, "", "0"])
def test_cuda_tests_are_skipped_without_a_gpu(expected):
    with pytest.raises(pytest.skip.Exception, match="no GPU"):
        demand_gpu(False, expected)


def test_cuda_tests_fail_without_an_expected_gpu():
    with pytest.raises(pytest.fail.Exception, match="SERVICE_STREAMER_EXPECT_CUDA=1"):
        demand_gpu(False, "1")
