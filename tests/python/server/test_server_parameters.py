"""The parameters of requests, in every protocol: done, or refused by their names."""

import asyncio

import pytest

pytest.importorskip("server_protocols")

from http_servers import App
from server_protocols import (
    V2,
    Failed,
    InBinary,
    InEvents,
    InJson,
    InTfServing,
)
from thread_models import Gate, double
from waits import eventually

from service_streamer.hub import ModelSpec

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
