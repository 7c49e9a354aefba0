"""A canary gets a share of the requests, and leaves if it is worse."""

import asyncio

import pytest
from hub_models import GATE
from waits import LONG, Threads, eventually

from service_streamer import StreamerClosed
from service_streamer.hub import ModelLoadError, UnknownModel
from service_streamer.hub._models import State
from service_streamer.hub._versions.plan import CanaryPlan


@pytest.fixture
def hub(folder, watched):
    """A hub that serves version 1, whose folder has version 2 too."""
    folder.configure("policy = 'pinned:1'")
    folder.add(1)
    folder.add(2)
    hub = watched()
    hub.load("times")
    return hub


def canary(hub):
    return hub.status()["times"].canary


def test_the_share_is_of_callers(hub):
    hub.canary("times", version=2, share=0.2)
    model = hub["times"]

    def outputs():
        return [model.predict([1], caller_key=f"user-{number}")[0] for number in range(500)]

    before = outputs()
    assert 50 < before.count(2) < 150
    assert outputs() == before
    hub.canary("times", version=2, share=0.5)
    after = outputs()
    assert 200 < after.count(2) < 300
    assert all(now == 2 for now, then in zip(after, before, strict=True) if then == 2)
    assert canary(hub).requests + canary(hub).serving_requests == 500


def test_all_ways_to_ask(hub):
    hub.canary("times", version=2, share=1)

    async def main():
        return await hub.apredict("times", [1]), await hub.submit("times", [1])

    assert hub.predict("times", [1]) == [2]
    assert hub.submit("times", [1]).result() == [2]
    assert asyncio.run(main()) == ([2], [2])
    assert list(hub["times"].stream(1)) == [1]
    assert hub.predict("times@1", [1]) == [1]
    assert canary(hub).requests == 4


def test_no_share_without_a_key(hub):
    hub.canary("times", version=2, share=0.5)
    outputs = [hub.predict("times", [1])[0] for _ in range(200)]
    assert 50 < outputs.count(2) < 150
    hub.rollback("times")
    assert {hub.predict("times", [1])[0] for _ in range(100)} == {1}
    eventually(lambda: set(hub.status()["times"].versions) == {1})


def test_promote(folder, hub):
    hub.canary("times", version=2, share=0.1)
    assert hub.promote("times") == 2
    assert hub.predict("times", [1]) == [2]
    assert canary(hub).ended == "it serves now"
    assert set(hub.status()["times"].versions) == {1, 2}  # the policy asks for 1
    folder.add(3)  # the folder is read again
    eventually(lambda: 3 in hub._models["times"].folders)
    assert hub.status()["times"].serving == 2
    folder.configure("policy = 'latest'")
    eventually(lambda: hub.status()["times"].serving == 3)
    with pytest.raises(ValueError, match="has no canary"):
        hub.promote("times")


def test_a_promoted_version_can_be_rolled_back(hub):
    hub.canary("times", version=2, share=0.1)
    hub.promote("times")
    assert hub.rollback("times", timeout=LONG) == 1
    assert hub.predict("times", [1]) == [1]
    hub.canary("times", version=2, share=0.1)
    hub.promote("times")
    assert hub.predict("times", [1]) == [2]


def test_a_canary_that_is_worse_leaves(hub, caplog):
    hub.canary("times", version=2, share=1, margin=0.05, min_requests=20)
    for _ in range(18):
        hub.predict("times", [1])
    for item in (None, None):  # 2 of 20 is more than 0 and 5 %
        with pytest.raises(TypeError):
            hub.predict("times", [item])
    assert canary(hub).ended == "error rate 10.0%, against 0.0% of the version that serves"
    assert hub.predict("times", [1]) == [1]
    assert any("the canary has ended" in each.getMessage() for each in caplog.records)
    eventually(lambda: set(hub.status()["times"].versions) == {1})


def test_a_canary_that_is_not_worse_stays(hub):
    hub.canary("times", version=2, share=0.5, margin=0.3, min_requests=20)
    for number in range(200):
        item = None if number % 4 == 0 else 1
        hub.submit("times", [item], caller_key=number).exception()
    assert (canary(hub).ended, canary(hub).errors > 0) == (None, True)


def test_a_canary_that_cannot_be_loaded(folder, hub):
    folder.add(3, factor="many")
    eventually(lambda: 3 in hub._models["times"].folders)
    with pytest.raises(ModelLoadError):
        hub.canary("times", version=3, share=0.5)
    assert canary(hub) is None
    assert hub.predict("times", [1]) == [1]


def test_the_end_of_a_canary_never_rolls_back(hub):
    hub.canary("times", version=2, share=1)
    hub.end_canary("times")
    assert (hub.predict("times", [1]), canary(hub).ended) == ([1], "it was taken out of service")
    hub.canary("times", version=2, share=1)
    hub.promote("times")
    with pytest.raises(ValueError, match="has no canary"):
        hub.end_canary("times")
    assert (hub.status()["times"].serving, hub.status()["times"].earlier) == (2, 1)


def test_a_canary_that_is_being_loaded_can_be_ended(folder, hub):
    folder.add(3, gate=True)
    eventually(lambda: 3 in hub._models["times"].folders)
    threads = Threads()
    threads.run(hub.canary, "times", version=3, share=1)
    eventually(lambda: hub._models["times"].trying is not None)
    hub.end_canary("times")
    GATE.set()
    threads.join()
    (error,) = threads.outcomes
    assert isinstance(error, ModelLoadError)
    assert str(error) == "the canary times@3 was ended or replaced meanwhile"
    assert (canary(hub), hub.predict("times", [1])) == (None, [1])
    eventually(lambda: set(hub.status()["times"].versions) == {1})


def test_a_failed_canary_leaves_the_one_that_is_being_loaded_to_model_toml(folder, hub):
    folder.add(3, gate=True)
    folder.add(4, factor="many")
    folder.configure("policy = 'pinned:1'", more="\n[canary]\nversion = 3\nshare = 1\n")
    model = hub._models["times"]
    eventually(lambda: model.trying is not None and 4 in model.folders)
    declared, first = model.trying, model.versions[3]
    threads = Threads()
    threads.run(hub.canary, "times", version=4, share=0.5)
    eventually(lambda: model.trying is not declared)
    folder.add(5)  # the folder is read again
    eventually(lambda: first.dropped)
    GATE.set()
    threads.join()
    assert isinstance(threads.outcomes[0], ModelLoadError)
    assert model.trying is declared
    eventually(lambda: canary(hub) is not None)
    assert (canary(hub).version, hub.predict("times", [1])) == (3, [3])


def test_a_canary_that_could_not_be_asked_for_is_not_tried(hub):
    hub.close()
    with pytest.raises(StreamerClosed):
        hub.canary("times", version=2, share=1)
    assert hub._models["times"].trying is None


def test_a_version_that_is_drained_or_out_of_service_is_no_canary(hub, monkeypatch):
    hub.canary("times", version=2, share=0.1)
    model, rollout = hub._watched("times")
    version = model.versions[2]
    with monkeypatch.context() as patch:
        patch.setattr(version, "state", State.DRAINING)
        rollout.begin_canary(model, CanaryPlan(2, 0.5))
        assert canary(hub).share == 0.1
    rollout.switch(version)  # as when it is loaded again
    assert canary(hub).share == 0.5
    hub.end_canary("times")
    assert version.dropped
    model.trying = CanaryPlan(2, 0.7)
    rollout.switch(version)
    model.trying = None
    assert (canary(hub).share, model.serving.canary) == (0.5, None)


def test_the_counts_of_a_replaced_canary_end_nothing(hub, caplog):
    hub.canary("times", version=2, share=1, min_requests=1)
    model = hub._models["times"]
    before = model.canary
    hub.canary("times", version=2, share=0.5)
    with pytest.raises(TypeError), before.request(model.serving, None):  # made before
        raise TypeError("mine")
    assert before.ended == "another canary has begun"
    assert (canary(hub).ended, canary(hub).share) == (None, 0.5)
    assert not any("the canary has ended" in each.getMessage() for each in caplog.records)


def test_what_a_canary_must_be(hub):
    with pytest.raises(UnknownModel, match="has no version 7; it has 1, 2"):
        hub.canary("times", version=7, share=0.5)
    with pytest.raises(ValueError, match=r"version 1 .* serves already"):
        hub.canary("times", version=1, share=0.5)
    with pytest.raises(ValueError, match="share must be from 0 to 1"):
        hub.canary("times", version=2, share=10)


def test_model_toml_begins_and_ends_a_canary(folder, hub):
    table = "\n[canary]\nversion = {}\nshare = {}\n"
    pinned = "policy = 'pinned:1'"
    folder.configure(pinned, more=table.format(2, 1))
    eventually(lambda: canary(hub) is not None)
    assert (hub.predict("times", [1]), canary(hub).version) == ([2], 2)
    hub.rollback("times")  # it has ended, and stays so until the file changes
    folder.add(3)
    eventually(lambda: 3 in hub._models["times"].folders)
    assert hub.predict("times", [1]) == [1]
    folder.configure(pinned, more=table.format(3, 0.5))
    eventually(lambda: canary(hub).version == 3)
    assert (canary(hub).share, canary(hub).ended) == (0.5, None)
    folder.configure(pinned)
    eventually(lambda: canary(hub).ended == "model.toml has changed")
    eventually(lambda: set(hub.status()["times"].versions) == {1})


def test_a_wrong_edit_of_model_toml_does_not_keep_the_canary_for_ever(folder, hub):
    table = "\n[canary]\nversion = {}\nshare = 1\n"
    pinned = "policy = 'pinned:1'"
    folder.configure(pinned, more=table.format(2))
    eventually(lambda: canary(hub) is not None)
    for number in (7, 8):  # each is reported
        folder.configure(pinned, more=table.format(number))
        why = f"has no version {number}; it has 1, 2"
        eventually(lambda why=why: why in (hub.status()["times"].error or ""))
    assert canary(hub).ended is None
    folder.configure(pinned)
    eventually(lambda: canary(hub).ended == "model.toml has changed")
    eventually(lambda: hub.status()["times"].error is None)


def test_a_wrong_canary_of_model_toml_is_named_and_begins_when_it_can(folder, hub):
    pinned = "policy = 'pinned:1'"
    folder.configure(pinned, more="\n[canary]\nversion = 2\nshare = 10\n")
    eventually(lambda: "share must be from 0 to 1, not 10" in (hub.status()["times"].error or ""))
    folder.configure(pinned, more="\n[canary]\nversion = 3\nshare = 1\n")
    eventually(lambda: "has no version 3; it has 1, 2" in (hub.status()["times"].error or ""))
    assert hub.predict("times", [1]) == [1]
    folder.add(3)
    eventually(lambda: canary(hub) is not None)
    assert hub.predict("times", [1]) == [3]


def test_a_canary_whose_folder_goes(folder, hub):
    import shutil

    hub.canary("times", version=2, share=1)
    shutil.rmtree(folder.model / "2")
    eventually(lambda: canary(hub).ended == "its folder is gone")
    assert hub.predict("times", [1], timeout=LONG) == [1]
