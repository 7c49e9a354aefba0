"""Tests that need a GPU are skipped without one, unless somebody says that it must be there."""

import pytest
from gpus import demand_gpu


@pytest.mark.parametrize("expected", [None, "0", "1"])
def test_with_a_gpu_they_run(expected):
    demand_gpu(True, expected)


@pytest.mark.parametrize("expected", [None, "", "0"])
def test_without_one_they_are_skipped(expected):
    with pytest.raises(pytest.skip.Exception, match="no GPU"):
        demand_gpu(False, expected)


def test_without_one_that_must_be_there_they_fail():
    with pytest.raises(pytest.fail.Exception, match="SERVICE_STREAMER_EXPECT_CUDA=1"):
        demand_gpu(False, "1")
