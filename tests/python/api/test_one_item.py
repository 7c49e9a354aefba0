"""predict_one() and apredict_one(): one item in, its output out."""

import asyncio

import pytest
from thread_models import double
from told import told
from waits import eventually

from service_streamer import Pipeline, RequestTimeout
from service_streamer.hub import ModelHub, ModelSpec


def test_an_item_gives_its_output(streamers, run):
    streamer = streamers()
    assert streamer.predict_one(3) == 6
    assert streamer.predict_one("ab") == "abab"

    async def together():
        return await asyncio.gather(*map(streamer.apredict_one, range(20)))

    assert run(together()) == list(range(0, 40, 2))


@pytest.mark.not_redis
def test_items_of_several_callers_share_a_batch(held, gate, threads):
    streamer = held(batch_size=8)
    for item in (1, 2):
        threads.run(streamer.predict_one, item)
    eventually(lambda: streamer.stats().queued_items == 2)
    gate.open()
    assert sorted(threads.join()) == [2, 4]
    assert streamer.stats().batch_sizes[2] == 1


def test_the_exception_of_an_item_is_raised(streamers, run):
    streamer = streamers(lambda batch: [1 / item for item in batch])
    with pytest.raises(ZeroDivisionError):
        streamer.predict_one(0)
    with pytest.raises(ZeroDivisionError):
        run(streamer.apredict_one(0))


def test_the_options_of_a_call_apply(held, run):
    streamer = held(tenants={"acme": 1})
    with pytest.raises(RequestTimeout):
        streamer.predict_one(1, timeout=0, priority=1, tenant="acme")
    with pytest.raises(RequestTimeout):
        run(streamer.apredict_one(1, timeout=0, priority=1, tenant="acme"))


def test_a_slice_of_a_batch_is_not_an_output(streamers, run):
    streamer = streamers(output="batch")
    with pytest.raises(ValueError) as raised:
        streamer.predict_one(1)
    assert str(raised.value) == told(
        'predict_one needs output="items": with "batch", use predict([item])',
        "predict_one-of-a-whole-batch",
    )
    with pytest.raises(ValueError, match=r'output="items"'):
        run(streamer.apredict_one(1))
    assert streamer.stats().submitted == 0


def test_a_pipeline_and_a_model_of_a_hub_take_one_item(run):
    with Pipeline(double, double) as pipeline:
        assert pipeline.predict_one(1) == 4
        assert run(pipeline.apredict_one(1)) == 4
    specs = {
        "items": ModelSpec(double, batch_size=8),
        "batch": ModelSpec(double, batch_size=8, output="batch"),
    }
    with ModelHub(specs) as hub:
        assert hub["items"].predict_one(1) == 2
        assert run(hub["items"].apredict_one(1)) == 2
        with pytest.raises(ValueError, match=r'output="items"'):
            hub["batch"].predict_one(1)  # not loaded yet
