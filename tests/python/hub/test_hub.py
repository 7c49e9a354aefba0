"""A model of a hub is used as its streamer is."""

import asyncio

import pytest
import traces
from step_models import Countdown
from thread_models import double

from service_streamer import Pipeline, StreamerClosed, StreamerError, ThreadedStreamer
from service_streamer.hub import ModelHub, ModelSpec, UnknownModel


def state_of(hub, name):
    (version,) = hub.status()[name].versions.values()
    return version.state


@pytest.fixture(params=["unloaded", "loaded"])
def model(request, hubs):
    hub = hubs({"double": ModelSpec(double, batch_size=8)})
    if request.param == "loaded":
        hub.load("double")
    return hub["double"]


def test_predict(model):
    assert model.predict([1, 2]) == [2, 4]
    assert model.predict([]) == []


def test_submit(model):
    assert model.submit([1, 2], timeout=20).result() == [2, 4]


def test_asyncio(model):
    async def main():
        return await model.apredict([1]), await model.submit([2])

    assert asyncio.run(main()) == ([2], [4])


def test_map(model):
    assert list(model.map(range(20))) == list(range(0, 40, 2))


def test_stream(model):
    assert list(model.stream(3)) == [6]


def test_astream(model):
    async def main():
        return [piece async for piece in model.astream(3)]

    assert asyncio.run(main()) == [6]


def test_statistics(model):
    before = model.stats().submitted
    assert isinstance(model.explain(), str)
    model.predict([1])
    assert (before, model.stats().submitted) == (0, 1)


def test_wait_ready_loads(model):
    model.wait_ready()
    assert model.explain().startswith("ThreadedStreamer(double)")


def test_a_handle_closes_nothing(model):
    with model:
        model.predict([1])
    model.close()
    assert model.predict([1]) == [2]


def test_bad_requests_fail_alone(model):
    with pytest.raises(TypeError, match="batch must be a sequence"):
        model.predict("text")
    with pytest.raises(TypeError, match="unsupported operand"):
        model.predict([None])


def test_statistics_outlive_the_streamer(hubs):
    hub = hubs({"double": ModelSpec(double, batch_size=8)})
    hub.predict("double", [1, 2, 3])
    hub.unload("double")
    assert state_of(hub, "double") == "unloaded"
    assert hub["double"].stats().items == 3
    assert hub.status()["double"].versions[1].requests == 1


def test_every_kind_of_model(hubs):
    hub = hubs(
        {
            "function": ModelSpec(double, batch_size=8),
            "steps": ModelSpec(Countdown(), batch_size=8),
            "pipeline": ModelSpec.factory(lambda: Pipeline(double, double)),
        }
    )
    assert hub.predict("function", [1]) == [2]
    assert hub.predict("steps", [2]) == ThreadedStreamer(Countdown(), 8).predict([2])
    assert hub.predict("pipeline", [1]) == [4]
    assert list(hub["pipeline"].stream(1)) == [4]


def test_warm_up_comes_before_the_first_request(hubs):
    seen = []

    def model(batch):
        seen.append(batch)
        return batch

    hub = hubs({"model": ModelSpec(model, batch_size=2, warmup=["a", "b", "c"])})
    hub.predict("model", ["first"])
    assert seen == [["a", "b"], ["c"], ["first"]]


def test_load_at_the_start(hubs, factories):
    factory = factories()
    hub = hubs({"model": ModelSpec.factory(factory, load="start")})
    factory.wait_entered()
    hub["model"].wait_ready()
    assert factory.loads == 1


def test_names(hubs):
    hub = hubs({"double": ModelSpec(double, batch_size=8)})
    assert hub.predict("double@1", [1]) == [2]
    assert "double" in hub
    with pytest.raises(UnknownModel, match="no model 'triple'; its models are: double"):
        hub["triple"]
    with pytest.raises(UnknownModel, match="no version or label '2'; its versions are 1"):
        hub["double@2"]
    for name in ("../double", "a/b", "", "a@b", ".", "a b"):
        with pytest.raises(ValueError, match="the name of a model must"):
            ModelHub({name: ModelSpec(double, batch_size=8)})


def test_settings_are_checked():
    with pytest.raises(TypeError, match="batchsize"):
        ModelSpec(double, batch_size=8, batchsize=8)
    with pytest.raises(TypeError, match="batch_size"):
        ModelSpec(double)
    with pytest.raises(ValueError, match="load must be"):
        ModelSpec(double, batch_size=8, load="later")
    with pytest.raises(TypeError, match="factory"):
        ModelSpec(ThreadedStreamer(double, 8))
    with pytest.raises(TypeError, match="must be a ModelSpec"):
        ModelHub({"double": double})
    for size in ("much", "12 XB", 0, -1, "1.2.3GB"):
        with pytest.raises(ValueError, match="memory_budget must be"):
            ModelHub({}, memory_budget=size)


def test_settings_hold_for_later_loads(hubs):
    hub = hubs({"double": ModelSpec(double, batch_size=8)})
    model = hub["double"]
    with pytest.raises(StreamerError, match=r"double@1 is unloaded: load it with ModelHub\.load"):
        model.configure(batch_size=4)
    hub.load("double")
    model.configure(batch_size=4, policy="window")
    with pytest.raises(ValueError, match="batch_size must be"):
        model.configure(batch_size=0)
    hub.unload("double")
    hub.load("double")
    assert (model.stats().batch_size, model.stats().policy) == (4, "window")


def test_a_loaded_model_is_recorded(hubs, tmp_path):
    hub = hubs({"double": ModelSpec(double, batch_size=8)})
    with pytest.raises(StreamerError, match="double@1 is unloaded"):
        hub["double"].record(tmp_path / "trace.json")
    hub.load("double")
    with hub["double"].record(tmp_path / "trace.json"):
        hub.predict("double", [1])
        hub.unload("double")
    entries, _ = traces.read(tmp_path / "trace.json")
    assert len(traces.batches(entries)) == 1


def test_a_closed_hub_refuses(hubs):
    hub = hubs({"double": ModelSpec(double, batch_size=8)})
    hub.predict("double", [1])
    model = hub["double"]
    hub.close()
    with pytest.raises(StreamerClosed):
        model.predict([1])
    with pytest.raises(StreamerClosed):
        model.wait_ready()
