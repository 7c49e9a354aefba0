"""The parameters of requests, in every protocol: done, or refused by their names."""

import asyncio
import functools
import json

import pytest

pytest.importorskip("server_protocols")

from http_servers import App
from server_protocols import (
    V2,
    Failed,
    InBinary,
    InEvents,
    InGrpcStream,
    InJson,
    InTfServing,
)
from thread_models import Gate, double
from waits import eventually

from service_streamer import ManagedModel
from service_streamer._base.loadable import Loadable
from service_streamer.hub import ModelHub, ModelSpec

pytest_plugins = ["grpc_fixtures"]

REGION = {"shared_memory_region": "a", "shared_memory_byte_size": 8}
NOT_DONE = [  # where, the parameters, what the error names
    ("of_request", {"sequence_id": 1}, "'sequence_id' of the request"),
    ("of_request", {"sequence_id": "a", "sequence_start": True}, "'sequence_id', 'sequence_start'"),
    ("of_request", {"sequence_end": True}, "'sequence_end' of the request"),
    ("of_request", {"content_type": "base64"}, "content_type 'base64' of the request"),
    ("of_request", {"temperature": 1}, "'temperature' of the request"),
    ("of_input", REGION, "'shared_memory_byte_size', 'shared_memory_region'"),
    ("of_input", {"shared_memory_offset": 8}, "'shared_memory_offset' of input 'x'"),
    ("of_input", {"content_type": "base64"}, "content_type 'base64' of input 'x'"),
    ("of_input", {"content_type": "pd_json"}, "content_type 'pd_json' of input 'x'"),
    ("of_input", {"content_type": "datetime"}, "content_type 'datetime' of input 'x'"),
    ("of_input", {"content_type": "hg_json"}, "content_type 'hg_json' of input 'x'"),
    ("of_input", {"scale": 2}, "'scale' of input 'x'"),
    ("of_output", {"classification": 3}, "'classification' of output 'output'"),
    ("of_output", REGION, "'shared_memory_region' of output 'output'"),
    ("of_output", {"content_type": "base64"}, "content_type 'base64' of output 'output'"),
    ("of_output", {"top": 2}, "'top' of output 'output'"),
]
SENT_BY_CLIENTS = [
    ("of_request", {"sequence_id": 0, "sequence_start": False, "sequence_end": False}),
    ("of_request", {"sequence_id": "", "priority": 0, "timeout": 0}),
    ("of_request", {"timeout": 10_000_000, "priority": 3}),
    ("of_request", {"triton_enable_empty_final_response": False}),
    *(("of_request", {"content_type": each}) for each in ("np", "str", "hf", "pd")),
    *(("of_input", {"content_type": each}) for each in ("np", "nplist", "str", "raw")),
    ("of_output", {"content_type": "np", "classification": 0}),
]
ODD = [  # for HTTP only
    ("of_request", {"binary_data_output": "yes"}, "binary_data_output must be true or false"),
    ("of_request", {"priority": 1.5}, "priority must be an int of at least 0, not 1.5"),
    ("of_request", {"priority": 2**40}, str(2**40)),
    ("of_request", {"content_type": ["np"]}, "content_type ['np'] of the request"),
    ("of_output", {"binary_data": 1}, "binary_data must be true or false, not 1"),
]


@pytest.mark.parametrize("kind", V2)
def test_a_parameter_that_is_not_done_is_refused_by_its_name(connect, kind):
    client = connect({"double": ModelSpec(double, batch_size=8)}, kind)
    codes = ("INVALID_ARGUMENT", "", 400)  # gRPC, its stream, HTTP
    for where, parameters, name in NOT_DONE + (ODD if kind is InJson else []):
        with pytest.raises(Failed) as caught:
            client.values("double", [1, 2], **{where: parameters})
        assert name in str(caught.value)
        assert caught.value.code in codes


@pytest.mark.parametrize("kind", V2)
def test_parameters_that_clients_send_by_themselves_pass(connect, kind):
    client = connect({"double": ModelSpec(double, batch_size=8)}, kind)
    cases = list(SENT_BY_CLIENTS)
    if kind is InJson:
        nothing = dict.fromkeys(("content_type", "headers", "sequence_id", "timeout"))
        cases += [("of_request", nothing), ("of_request", {"headers": {"host": "a"}})]
    elif kind is not InBinary:  # KServe's client sends those of HTTP, too
        cases += [("of_input", {"binary_data_size": 8}), ("of_output", {"binary_data": True})]
        cases += [("of_request", {"binary_data_output": True})]
    for where, parameters in cases:
        assert client.values("double", [1, 2], **{where: parameters}) == [2, 4], parameters


def test_fields_of_tensorflow_serving_that_are_not_done_are_refused(connect):
    spec = {"double": ModelSpec(double, batch_size=8)}
    for kind in (InTfServing, InEvents):
        client = connect(spec, kind)
        for name in (None, "", "serving_default"):
            assert client.values("double", [2], signature_name=name) == [4]
        for fields in ({"signature_name": "other"}, {"parameters": {"top": 1}}, {"inputs2": 1}):
            with pytest.raises(Failed, match=next(iter(fields))) as caught:
                client.values("double", [2], **fields)
            assert caught.value.code == 400


def test_the_priority_of_the_protocol_is_the_highest_at_1_which_is_its_default(server_hubs):
    gate = Gate()
    hub = server_hubs({"gate": ModelSpec(gate, batch_size=1, policy="greedy")})
    app = App(hub)

    def ask(value, priority=None, headers=None):
        told = {"name": "x", "datatype": "INT64", "shape": [1], "data": [value]}
        body = {"inputs": [told], "parameters": {"priority": priority}}
        return asyncio.ensure_future(app.answer("POST", "/v2/models/gate/infer", body, headers))

    async def main():
        asked = [ask(1)]
        await asyncio.to_thread(gate.wait_entered)
        asked += [ask(7, 7), ask(3, 3), ask(0, 0), ask(1, 1), ask(2, 2)]
        asked += [ask(10, 5, {"X-Priority": "1"})]  # in the header larger ones are higher
        await asyncio.to_thread(eventually, lambda: hub["gate"].stats().queued_requests == 6)
        gate.open()
        return [(await each).status for each in asked]

    assert asyncio.run(main()) == [200] * 7
    assert [batch[0] for batch in gate.batches] == [1, 10, 0, 1, 2, 3, 7]


# ----------------------------------------------------------- parameters for a model


def scale(batch, parameters):
    return [item * parameters.get("factor", 1) for item in batch]


class Scale:
    def __call__(self, batch, parameters):
        return scale(batch, parameters)

    def predict(self, batch, *, parameters):
        return scale(batch, parameters)


async def scale_async(batch, parameters):
    return scale(batch, parameters)


def scale_pieces(batch, parameters):
    yield scale(batch, parameters)


async def scale_async_pieces(batch, parameters):
    yield scale(batch, parameters)


class ManagedScale(ManagedModel):
    def init_model(self, path=None):
        pass

    def predict(self, batch, parameters):
        return scale(batch, parameters)


@pytest.mark.parametrize("kind", V2)
@pytest.mark.parametrize(
    "model",
    [scale, Scale(), Scale().predict, scale_async, functools.partial(scale)],
    ids=["function", "object", "method", "async", "partial"],
)
def test_parameters_reach_a_model_that_asks_for_them(connect, kind, model):
    client = connect({"scale": ModelSpec(model, batch_size=8)}, kind)
    for items in ([3], [1, 2], [*range(65)]):
        assert client.values("scale", items) == items
        asked = {"factor": 3, "timeout": 10_000_000, "other": "x", "sequence_id": 0}
        assert client.values("scale", items, asked) == [3 * each for each in items]


@pytest.mark.parametrize("model", [scale_pieces, scale_async_pieces])
def test_parameters_reach_a_model_that_streams(connect, model):
    client = connect({"scale": ModelSpec(model, batch_size=8)}, InGrpcStream)
    for items in ([3], [1, 2]):
        assert client.values("scale", items, {"factor": 3}) == [3 * each for each in items]


def test_parameters_reach_processes_and_models_of_a_folder(tmp_path):
    """Those of a folder are made by a function when they are loaded, and not known before."""
    for name, line in (
        ("function", "test_server_parameters:load_scale"),
        ("managed", "test_server_parameters:ManagedScale"),
    ):
        (tmp_path / name / "1").mkdir(parents=True)
        toml = f'model = "{line}"\n[options]\nbatch_size = 8\n'
        (tmp_path / name / "model.toml").write_text(toml)
    specs = {"forked": ModelSpec(scale, batch_size=8, processes=True, mp_start_method="fork")}
    ask = InJson.values
    with ModelHub(specs) as hub, ModelHub.watch(tmp_path, workers=1) as folder:
        for client, name in (
            (InJson(hub), "forked"),
            (InJson(folder), "function"),
            (InJson(folder), "managed"),
        ):
            assert ask(client, name, [1, 2], {"factor": 3}) == [3, 6], name
            assert ask(client, name, [1, 2]) == [1, 2]


def load_scale(folder):
    return scale


def test_a_batch_has_one_set_of_parameters(server_hubs):
    """Equal numbers of other types are other parameters."""
    seen = []

    def model(batch, parameters):
        gate(batch)
        seen.append((sorted(batch), repr(parameters)))
        return batch

    gate = Gate()
    spec = ModelSpec(model, batch_size=8, policy="greedy", key=lambda item: item > 6, weight=int,
                     max_weight=1000, worker_num=1)  # fmt: skip
    hub = server_hubs({"model": spec})
    app = App(hub)

    def ask(value, parameters):
        told = {"name": "x", "datatype": "INT64", "shape": [1], "data": [value]}
        body = {"inputs": [told], "parameters": parameters}
        return asyncio.ensure_future(app.answer("POST", "/v2/models/model/infer", body))

    async def main():
        asked = [ask(0, {})]
        await asyncio.to_thread(gate.wait_entered)
        sets = [{"a": 1}, {"a": 1.0}, {"a": True}, {"a": "1"}, {"a": 1, "b": 2}, {"b": 2, "a": 1}]
        asked += [ask(value, each) for value, each in enumerate([*sets, *sets, {}, None], 1)]
        stats = hub["model"].stats
        await asyncio.to_thread(eventually, lambda: stats().queued_requests == 14)
        gate.open()
        assert [(await each).status for each in asked] == [200] * 15

    asyncio.run(main())
    assert sorted(seen[1:]) == sorted(
        [
            *(([number], f"{{'a': {text}}}")
              for number, text in ((1, "1"), (2, "1.0"), (3, "True"), (4, "'1'"))),
            ([5, 6], "{'a': 1, 'b': 2}"),
            *(([number], f"{{'a': {text}}}")
              for number, text in ((7, "1"), (8, "1.0"), (9, "True"), (10, "'1'"))),
            ([11, 12], seen_text(seen, 11)),
            ([13, 14], "{}"),
        ]
    )  # fmt: skip


def seen_text(seen, item):
    (found,) = {text for batch, text in seen if item in batch}
    assert found in ("{'a': 1, 'b': 2}", "{'b': 2, 'a': 1}")
    return found


def test_a_bad_item_with_parameters_fails_alone(server_hubs):
    def model(batch, parameters):
        assert parameters == {"factor": 2}
        return [10 // item for item in batch]

    hub = server_hubs({"model": ModelSpec(model, batch_size=2, max_latency=9, policy="window")})
    app = App(hub)

    async def main():
        told = {"name": "x", "datatype": "INT64", "shape": [1]}
        bodies = [
            {"inputs": [{**told, "data": [each]}], "parameters": {"factor": 2}} for each in (5, 0)
        ]
        asked = [app.answer("POST", "/v2/models/model/infer", each) for each in bodies]
        return [each.status for each in await asyncio.gather(*asked)]

    assert asyncio.run(main()) == [200, 500]


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"factor": [1]}, "'factor' must be a string, a number or a bool, not [1]"),
        ({"factor": {}}, "'factor' must be a string, a number or a bool, not {}"),
        ({"text": "x" * 9000}, "have more than 8192 characters"),
        ({f"p{number}": number for number in range(4000)}, "have more than 8192 characters"),
        ({"triton_other": 1}, "'triton_other' of the request"),
        ({"sequence_id": 7}, "'sequence_id' of the request"),
        ({"factor": 2, "shared_memory_region": "a"}, "'shared_memory_region' of the request"),
    ],
)
def test_what_is_no_parameter_of_a_model_is_refused(server_hubs, wrong, complaint):
    client = InJson(server_hubs({"scale": ModelSpec(scale, batch_size=8)}))
    with pytest.raises(Failed) as caught:
        client.values("scale", [1], wrong)
    assert complaint in str(caught.value)
    assert caught.value.code == 400
    nothing = dict.fromkeys(("factor", "x"))
    assert client.values("scale", [1], nothing) == [1]  # null is no parameter


def test_equal_items_with_other_parameters_are_not_coalesced(server_hubs):
    gate = Gate(lambda batch: batch)

    def model(batch, parameters):
        return scale(gate(batch), parameters)

    spec = ModelSpec(model, batch_size=1, policy="greedy", coalesce=lambda item: int(item))
    hub = server_hubs({"model": spec})
    app = App(hub)

    async def main():
        told = {"name": "x", "datatype": "INT64", "shape": [1], "data": [5]}
        bodies = [{"inputs": [told], "parameters": {"factor": each}} for each in (1, 2, 2)]
        path = "/v2/models/model/infer"
        asked = [asyncio.ensure_future(app.answer("POST", path, each)) for each in bodies]
        await asyncio.to_thread(eventually, lambda: hub["model"].stats().coalesced == 1)
        gate.open()
        return [json.loads((await each).body)["outputs"][0]["data"] for each in asked]

    assert asyncio.run(main()) == [[5], [10], [10]]
    assert len(gate.batches) == 2


def test_options_that_hide_the_items_of_a_batch_are_refused():
    with pytest.raises(TypeError, match="collate is not for a model that takes parameters"):
        ModelSpec(scale, batch_size=8, collate="stack")


class Part(Loadable):
    is_loaded = False

    def load(self, workers=1):
        self.is_loaded = True

    def stop(self, unwanted):
        pass


class WithPart(Scale):
    def __init__(self):
        self.part = Part()


@pytest.mark.parametrize("model", [WithPart(), WithPart().predict], ids=["object", "method"])
def test_what_a_model_with_parameters_contains_is_loaded(server_hubs, model):
    """As that of a model without, such as an `OnnxModel`."""
    hub = server_hubs({"model": ModelSpec(model, batch_size=8)})
    assert hub.predict("model", [1]) == [1]
    assert getattr(model, "__self__", model).part.is_loaded


def test_parameters_that_are_copied_too_often_are_refused(server_hubs):
    """Each item has a copy of its own where it is pickled."""
    client = InJson(server_hubs({"scale": ModelSpec(scale, batch_size=8)}))
    with pytest.raises(Failed, match="send at most 1047 items, or shorter") as caught:
        client.values("scale", [1] * 1048, {"text": "x" * 8004})
    assert caught.value.code == 400
    assert client.values("scale", [1], {"text": "x" * 8004}) == [1]


DEFAULTS = {"factor": 5}


def with_default(batch, parameters=DEFAULTS):
    return scale(batch, parameters)


async def async_with_default(batch, *, parameters=DEFAULTS):
    return scale(batch, parameters)


@pytest.mark.parametrize("model", [with_default, async_with_default])
def test_the_default_of_the_argument_holds_without_parameters(server_hubs, model):
    client = InJson(server_hubs({"scale": ModelSpec(model, batch_size=8)}))
    assert client.values("scale", [1, 2]) == [5, 10]
    assert client.values("scale", [1, 2], {"factor": 3}) == [3, 6]


@pytest.mark.parametrize(
    "model", [lambda batch, **parameters: batch, lambda batch, *parameters: batch]
)
def test_a_collecting_argument_of_that_name_asks_for_nothing(server_hubs, model):
    client = InJson(server_hubs({"model": ModelSpec(model, batch_size=8)}))
    assert client.values("model", [1]) == [1]
    with pytest.raises(Failed, match="'factor' of the request"):
        client.values("model", [1], {"factor": 2})
