"""Whether tests that need a GPU run."""

import importlib.util

import pytest


def sees_gpu():
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()


def demand_gpu(seen, expected):
    """Skip a test where there is no GPU; fail where the environment says that there is one."""
    if not seen and expected == "1":
        pytest.fail("SERVICE_STREAMER_EXPECT_CUDA=1, but torch sees no GPU", pytrace=False)
    if not seen:
        pytest.skip("torch sees no GPU")
