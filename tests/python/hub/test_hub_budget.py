"""A budget gives room to versions and chooses those that leave: no lock, no clock, no thread."""

import pytest

from service_streamer.hub import ModelSpec, ModelTooLarge
from service_streamer.hub._loading.budget import PATIENCE, Budget
from service_streamer.hub._loading.limits import Limits
from service_streamer.hub._memory import Size
from service_streamer.hub._models import Model, State


class Holders:
    """A budget for 100 bytes, whose versions were used in the order in which they were added."""

    def __init__(self, **limits):
        self.budget = Budget(Limits(**(limits or {"memory": 100})))
        self._models = []

    def make(self, size, pinned=False):
        model = Model(f"model{len(self._models)}", pinned)
        self._models.append(model)  # a version refers to its model weakly
        version = model.add(1, ModelSpec(sorted, batch_size=8))
        version.size = Size(size)
        version.used = float(len(self._models))
        return version

    def add(self, size, state=State.READY, pinned=False):
        version = self.make(size, pinned)
        assert self.budget.take(version)
        version.state = state
        return version


@pytest.fixture
def room():
    return Holders()


def test_a_version_takes_its_room_once_and_frees_it(room):
    version = room.add(60)
    assert room.budget.take(version)
    assert room.budget.holders == [version]
    other = room.make(50)
    assert not room.budget.take(other)
    assert not other.holds_room
    room.budget.free(version)
    room.budget.free(version)
    assert room.budget.take(other)
    assert room.budget.holders == [other]


def test_a_version_that_holds_room_gives_way_to_none_of_its_own_size(room):
    version = room.add(60)
    version.size = Size(100)
    assert room.budget.take(version)
    version.size = Size(101)
    with pytest.raises(ModelTooLarge):
        room.budget.take(version)


def test_a_version_that_is_being_replaced_does_not_count_as_loaded():
    room = Holders(max_loaded=1)
    old, new = room.add(0), room.make(0)
    assert not room.budget.take(new)
    new.beside = old
    assert room.budget.take(new)


# The states of three versions of 30 bytes, what is pinned, the size of a fourth version, and which
# leaves for it. None: no leaving is enough.
READY, LOADING, DRAINING = State.READY, State.LOADING, State.DRAINING
CASES = [
    ([READY, READY, READY], [], 10, []),
    ([READY, READY, READY], [], 11, [0]),
    ([READY, READY, READY], [], 50, [0, 1]),
    ([READY, READY, READY], [0], 11, [1]),
    ([LOADING, READY, READY], [], 11, [1]),
    ([LOADING, LOADING, LOADING], [], 11, None),
    ([DRAINING, READY, READY], [], 40, []),  # its room is awaited
    ([DRAINING, READY, READY], [], 41, [1]),
    ([DRAINING, LOADING, LOADING], [], 41, None),
    ([READY, READY, READY], [0, 1], 50, None),
]


@pytest.mark.parametrize(("states", "pinned", "size", "leaving"), CASES)
def test_the_least_recently_used_that_may_leave_are_the_victims(
    room, states, pinned, size, leaving
):
    versions = [room.add(30, state, index in pinned) for index, state in enumerate(states)]
    victims = room.budget.victims(room.make(size), now=0.0)
    assert victims == (None if leaving is None else [versions[index] for index in leaving])
    assert room.budget.holders == versions


def test_a_drain_that_takes_long_is_not_awaited(room):
    room.add(30, DRAINING)
    rest = [room.add(30), room.add(30)]
    coming = room.make(40)
    assert room.budget.victims(coming, now=PATIENCE - 0.01) == []
    assert room.budget.victims(coming, now=PATIENCE) == rest[:1]


def test_the_states_and_the_refusal_are_about_the_others(room):
    kept = room.add(60, pinned=True)
    kept.state = State.LOADING
    coming = room.make(50)
    assert room.budget.states_beside(coming) == {State.LOADING}
    assert room.budget.states_beside(kept) == set()
    assert "pinned models use 60 bytes of 100 bytes of memory" in str(room.budget.refusal(coming))
