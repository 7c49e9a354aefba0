"""ModelStreamInfer, read by the client of Triton."""

import queue

import numpy as np
import pytest
from thread_models import Gate
from waits import LONG, eventually

from service_streamer.hub import ModelSpec

triton = pytest.importorskip("tritonclient.grpc")
protocol = pytest.importorskip("tritonclient.grpc.service_pb2")

pytest_plugins = ["grpc_fixtures"]


def count(batch):
    """Stream the numbers below each item."""
    (limit,) = batch
    for number in range(int(limit)):
        yield [number]


def row(value, count=1):
    given = triton.InferInput("x", [count], "INT64")
    given.set_data_from_numpy(np.full(count, value))
    return given


@pytest.fixture
def open_stream(triton_clients):
    """Opens the stream of a client: what it gets comes to a queue, as (result, error)."""

    def open_stream(server):
        client, answers = triton_clients(server), queue.Queue()
        client.start_stream(lambda result, error: answers.put((result, error)))
        return client, lambda: answers.get(timeout=LONG)

    return open_stream


def test_each_output_of_a_stream_is_a_response(grpc_servers, open_stream):
    client, answer = open_stream(grpc_servers({"count": ModelSpec(count, batch_size=1)}))
    client.async_stream_infer("count", [row(3)], request_id="a", enable_empty_final_response=True)
    for number in range(3):
        result, error = answer()
        assert error is None
        assert (result.get_response().id, result.as_numpy("output").tolist()) == ("a", [number])
        found = result.get_response().parameters
        assert "triton_final_response" in found  # or perf_analyzer takes it for the last one
        assert not found["triton_final_response"].bool_param
    result, error = answer()
    assert error is None
    assert result.get_response().parameters["triton_final_response"].bool_param
    assert len(result.get_response().outputs) == 0


def test_a_request_that_fails_does_not_end_the_stream(grpc_servers, open_stream):
    client, answer = open_stream(grpc_servers({"echo": ModelSpec(list, batch_size=8)}))
    client.async_stream_infer("nope", [row(1)], request_id="a")
    result, error = answer()
    assert "nope" in str(error)
    client.async_stream_infer("echo", [row(7, 3)], request_id="b")
    result, error = answer()
    assert error is None
    assert result.as_numpy("output").tolist() == [7, 7, 7]


def test_requests_of_a_stream_share_a_batch(grpc_servers, open_stream):
    gate = Gate()
    spec = ModelSpec(gate, batch_size=8, policy="greedy")
    server = grpc_servers({"gate": spec})
    client, answer = open_stream(server)
    client.async_stream_infer("gate", [row(0)])
    gate.wait_entered()
    for number in (1, 2, 3):
        client.async_stream_infer("gate", [row(number)])
    eventually(lambda: server.hub["gate"].stats().queued_requests == 3)
    gate.open()
    assert [answer()[1] for _ in range(4)] == [None] * 4
    assert [len(batch) for batch in gate.batches] == [1, 3]


def test_a_client_that_goes_away_cancels_what_it_asked_for(grpc_servers, open_stream):
    gate = Gate()
    spec = ModelSpec(gate, batch_size=1, policy="greedy", worker_timeout=10 * LONG)
    server = grpc_servers({"gate": spec})
    client, _ = open_stream(server)
    client.async_stream_infer("gate", [row(0)])
    gate.wait_entered()
    client.async_stream_infer("gate", [row(1)])
    eventually(lambda: server.hub["gate"].stats().queued_requests == 1)
    client.stop_stream(cancel_requests=True)
    eventually(lambda: server.hub["gate"].stats().queued_requests == 0)
    assert len(gate.batches) == 1
    gate.open()


def test_bytes_that_are_no_message_are_answered_with_an_error(grpc_servers, triton_clients):
    client = triton_clients(grpc_servers({}))
    path = "/inference.GRPCInferenceService/ModelStreamInfer"
    answers = client._channel.stream_stream(path)(iter([b"\xff"]))
    (answer,) = map(protocol.ModelStreamInferResponse.FromString, answers)
    assert answer.error_message == "the 1 bytes are no inference.ModelInferRequest"


def test_a_server_that_stops_answers_what_it_has_taken(grpc_servers, open_stream):
    gate = Gate()
    server = grpc_servers({"gate": ModelSpec(gate, batch_size=1)})
    client, answer = open_stream(server)
    client.async_stream_infer("gate", [row(1)])
    gate.wait_entered()
    stopped = server.stop()
    assert not stopped.done()
    gate.open()
    assert answer()[0].as_numpy("output").tolist() == [2]
    assert "StatusCode.UNAVAILABLE" in str(answer()[1])
    stopped.result(LONG)
