"""Clients of the server in each of its protocols.

They send a model the tensor x of INT64, and return the values of its one output.
"""

import asyncio
import base64
import json
import struct

import pytest

pytest.importorskip("http_servers")
pytest.importorskip("grpc")
pytest.importorskip("tritonclient.grpc")

import grpc
import numpy as np
import tritonclient.grpc.service_pb2 as protocol
from http_servers import App


class Failed(Exception):
    """What the server says of a request that has failed."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class Http:
    def __init__(self, hub):
        self._app = App(hub)

    def ask(self, path, body):
        answer = self._app.ask("POST", path, body)
        if answer.status != 200:
            raise Failed(answer.status, answer.json["error"])
        return answer


class InJson(Http):
    def values(self, model, items, of_request=None, of_input=None, of_output=None, name=None):
        told = {"name": "x", "datatype": "INT64", "shape": [len(items)], "data": items}
        body = {"inputs": [{**told, "parameters": of_input}], "parameters": of_request}
        if of_output is not None:
            body["outputs"] = [{"name": name or "output", "parameters": of_output}]
        return self.read(self.ask(f"/v2/models/{model}/infer", body))

    def read(self, answer):
        (output,) = answer.json["outputs"]
        is_text = output["datatype"] == "BYTES"
        return [value_of(each, is_text) for each in output["data"]]


class InBinary(InJson):
    def values(self, model, items, of_request=None, **parameters):
        of_request = {**(of_request or {}), "binary_data_output": True}
        return super().values(model, items, of_request, **parameters)

    def read(self, answer):
        length = int(answer.headers["inference-header-content-length"])
        (output,) = json.loads(answer.body[:length])["outputs"]
        return raw_values(output["datatype"], answer.body[length:])


class InTfServing(Http):
    def values(self, model, items, **fields):
        answer = self.ask(f"/v1/models/{model}:predict", {"instances": items, **fields})
        rows = [each if type(each) is list else [each] for each in answer.json["predictions"]]
        return [value_of(each, type(each) is str) for row in rows for each in row]


class InEvents(Http):
    def values(self, model, items, **fields):
        return asyncio.run(self._events(f"/v1/models/{model}:stream", *items, fields))

    async def _events(self, path, item, fields):
        answer = await self._app.answer("POST", path, {"instance": item, **fields})
        if answer.status != 200:
            raise Failed(answer.status, json.loads(answer.body)["error"])
        lines = b"".join([piece async for piece in answer.body]).decode().splitlines()
        data = [json.loads(each.removeprefix("data: ")) for each in lines if each[:5] == "data:"]
        if "event: error" in lines:
            raise Failed(data[-1]["status"], data[-1]["error"])
        return data[:-1]


def value_of(value, is_text):
    if type(value) is dict:
        return base64.b64decode(value["b64"])
    if is_text:
        return value.encode()
    return value


class InGrpc:
    raw = False

    def __init__(self, server, client):
        self._client = client

    def values(self, model, items, of_request=None, of_input=None, of_output=None, name=None):
        message = protocol.ModelInferRequest(model_name=model)
        message.inputs.add(name="x", datatype="INT64", shape=[len(items)])
        set_parameters(message, of_request)
        set_parameters(message.inputs[0], of_input)
        if of_output is not None:
            set_parameters(message.outputs.add(name=name or "output"), of_output)
        if self.raw:
            message.raw_input_contents.append(np.array(items, "<i8").tobytes())
        else:
            message.inputs[0].contents.int64_contents.extend(items)
        answer = self.send(message)
        (output,), (raw,) = answer.outputs, answer.raw_output_contents
        return raw_values(output.datatype, raw)

    def send(self, message):
        try:
            return self._client._client_stub.ModelInfer(message)
        except grpc.RpcError as error:
            raise Failed(error.code().name, error.details()) from None


class InRawGrpc(InGrpc):
    raw = True


class InGrpcStream(InGrpc):
    raw = True

    def send(self, message):
        path = "/inference.GRPCInferenceService/ModelStreamInfer"
        method = self._client._channel.stream_stream(path)
        answers = method(iter([message.SerializeToString()]))
        for data in answers:
            answer = protocol.ModelStreamInferResponse.FromString(data)
            if answer.error_message:
                raise Failed("", answer.error_message)
        return answer.infer_response


def set_parameters(owner, parameters):
    names = {bool: "bool_param", int: "int64_param", str: "string_param", float: "double_param"}
    for name, value in (parameters or {}).items():
        setattr(owner.parameters[name], names[type(value)], value)


def raw_values(datatype, data):
    if datatype != "BYTES":
        kind = datatype.rstrip("0123456789")
        size = int(datatype.removeprefix(kind) or 8) // 8
        code = {"BOOL": "?", "UINT": "u", "INT": "i", "FP": "f", "BF": "u"}[kind]
        return np.frombuffer(data, code if code == "?" else f"<{code}{size}").tolist()
    found = []
    while data:
        end = 4 + struct.unpack_from("<I", data)[0]
        found.append(data[4:end])
        data = data[end:]
    return found


V2 = [InJson, InBinary, InGrpc, InRawGrpc, InGrpcStream]


def connect(kind, models, server_hubs, grpc_servers, triton_clients):
    """Serve models in a protocol, and return its client."""
    if issubclass(kind, Http):
        return kind(server_hubs(models))
    server = grpc_servers(models)
    return kind(server, triton_clients(server))
