"""Where BatchedModel runs its module. The order of a GPU's work: `needs_cuda` in test_batched."""

import pytest

pytest_plugins = ["batched_fixtures"]
pytestmark = pytest.mark.torch


@pytest.fixture
def sharded(torch):
    """A module that records the devices it was moved to in `moves`."""

    class Sharded(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.moves = []

        def to(self, device):
            self.moves.append(str(device))

        def forward(self, x):
            return 2 * x

    return Sharded()


def test_a_module_is_moved_only_if_a_device_is_given(torch, batched, sharded):
    (output,) = batched(sharded)([torch.ones(1)])
    assert output.item() == 2
    assert sharded.moves == []
    batched(sharded, device="cpu")([torch.ones(1)])
    assert sharded.moves == ["cpu"]


def test_a_module_without_parameters_is_on_the_device_of_its_buffers(torch, batched, sharded):
    sharded.register_buffer("scale", torch.ones(1, device="meta"))
    with pytest.raises(ValueError, match="not 'meta'"):
        batched(sharded)
    sharded.weight = torch.nn.Parameter(torch.ones(1))  # registered first
    assert " on cpu, " in repr(batched(sharded))


def test_rows_are_waited_for_before_callers_get_them(torch, batched, monkeypatch):
    waited = []
    monkeypatch.setattr(
        "service_streamer.torch._rows.wait_until_computed", lambda x: waited.append(x.tolist())
    )
    batched(lambda x: (x, 2 * x))([torch.ones(1), torch.zeros(1)])
    assert waited == [[[1], [0]], [[2], [0]]]
