"""What the clients of others ask the server, each in an environment of its own.

    python tests/clients.py kserve HTTP GRPC FILES

`make test-clients` runs it: tests/tools/clients.py makes the environments, serves the models of
tests/python/support/foreign_models.py at the addresses HTTP and GRPC, and gets the files.
"""

import asyncio
import base64
import contextlib
import importlib
import itertools
import json
import re
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

NUMBERS = {
    "BOOL": "?", "INT8": "i1", "INT16": "i2", "INT32": "i4", "INT64": "i8", "UINT8": "u1",
    "UINT16": "u2", "UINT32": "u4", "UINT64": "u8", "FP16": "f2", "FP32": "f4", "FP64": "f8",
}  # fmt: skip


def examples() -> dict[str, object]:
    """An array of each datatype."""
    import numpy as np

    numbers = np.array([[1, 0], [3, 4]])
    texts = np.array([["a", "é"], ["", "x" * 300]], object)
    return {**{name: numbers.astype(code) for name, code in NUMBERS.items()}, "BYTES": texts}


def decoded(array):
    """The same array, with str objects for bytes."""
    import numpy as np

    if array.dtype != object:
        return array
    flat = [each.decode() if isinstance(each, bytes) else each for each in array.reshape(-1)]
    return np.array(flat, object).reshape(array.shape)


# ------------------------------------------------------------------------- the clients


def kserve(http: str, grpc: str, files: Path) -> None:
    """The SDK of KServe: health, and tensors of each datatype in JSON, in binary and over gRPC."""
    asyncio.run(_kserve(f"http://{http}", grpc))


async def _kserve(url: str, grpc: str) -> None:
    import numpy as np
    from kserve import (
        InferenceGRPCClient,
        InferenceRESTClient,
        InferInput,
        InferRequest,
        RESTConfig,
    )
    from kserve.protocol.infer_type import RequestedOutput

    async with (
        InferenceRESTClient(RESTConfig(protocol="v2")) as rest,
        InferenceGRPCClient(grpc) as rpc,
    ):
        assert await rest.is_server_live(url)
        assert await rest.is_server_ready(url)
        assert await rpc.is_server_live()
        assert await rpc.is_server_ready()
        for model, ready in (("any", True), ("no_such", False)):
            assert await rest.is_model_ready(url, model) is ready
            assert await rpc.is_model_ready(model) is ready
        for (datatype, array), binary in itertools.product(examples().items(), (False, True)):
            if datatype == "FP16" and not binary:  # the client refuses it
                continue
            given = InferInput("x", list(array.shape), datatype)
            given.set_data_from_numpy(array, binary_data=binary)
            wanted = [RequestedOutput("output", {"binary_data": binary})]
            by_rest = InferRequest("any", [given], request_id="7", request_outputs=wanted)
            by_rpc = InferRequest("any", [given], request_id="7")
            for answer in (await rest.infer(url, by_rest, "any"), await rpc.infer(by_rpc)):
                assert answer.id == "7"
                np.testing.assert_array_equal(decoded(answer.outputs[0].as_numpy()), array)
    async with InferenceRESTClient(RESTConfig(protocol="v1")) as rest:
        assert await rest.is_server_live(url)
        assert await rest.is_model_ready(url, "any") is True
        answer = await rest.infer(url, {"instances": [[1, 2], [3, 4]]}, "any")
        assert answer == {"predictions": [[1, 2], [3, 4]]}


def mlserver(http: str, grpc: str, files: Path) -> None:
    """The codecs of MLServer, in JSON and over gRPC."""
    import numpy as np
    import pandas as pd
    from grpc import insecure_channel
    from mlserver.codecs import (
        Base64Codec,
        NumpyRequestCodec,
        PandasCodec,
        StringRequestCodec,
    )
    from mlserver.grpc.converters import ModelInferRequestConverter, ModelInferResponseConverter
    from mlserver.grpc.dataplane_pb2_grpc import GRPCInferenceServiceStub
    from mlserver.types import InferenceRequest, InferenceResponse

    def by_http(request: InferenceRequest) -> InferenceResponse:
        body = request.model_dump_json(exclude_none=True).encode()
        return InferenceResponse.model_validate_json(post(f"http://{http}", "any", body))

    def by_grpc(request: InferenceRequest, raw: bool) -> InferenceResponse:
        message = ModelInferRequestConverter.from_types(request, "any", "", use_raw=raw)
        return ModelInferResponseConverter.to_types(stub.ModelInfer(message))

    frame = pd.DataFrame({"n": [1, 2, 3], "text": ["x", "é", ""]}, dtype=object)
    frame["n"] = frame["n"].astype("i8")
    with insecure_channel(grpc) as channel:
        stub = GRPCInferenceServiceStub(channel)
        for way, codes in (
            (by_http, NUMBERS),
            (lambda each: by_grpc(each, raw=True), NUMBERS),
            (lambda each: by_grpc(each, raw=False), NUMBERS.keys() - {"FP16"}),
        ):
            for array in (examples()[each] for each in codes):
                answer = NumpyRequestCodec.decode_response(
                    way(NumpyRequestCodec.encode_request(array))
                )
                np.testing.assert_array_equal(answer, array)
            texts = ["a", "é", ""]
            request = StringRequestCodec.encode_request(texts)
            assert StringRequestCodec.decode_response(way(request)) == texts
            answer = PandasCodec.decode_response(way(PandasCodec.encode_request(frame)))
            np.testing.assert_array_equal(decoded(answer.values), frame.values)
        request = InferenceRequest(inputs=[Base64Codec.encode_input("x", [b"\xff", b"a"])])
        with contextlib.suppress(urllib.error.HTTPError):
            by_http(request)
            raise AssertionError("base64 was taken for text")


def openai(http: str, grpc: str, files: Path) -> None:
    """The SDK of OpenAI: vectors as floats and in base64, models, errors, and asyncio."""
    import openai

    client = openai.OpenAI(base_url=f"http://{http}/openai/v1", api_key="none", max_retries=1)
    create = client.embeddings.create
    expected = {"ab": [2, 97, 98, 32], "": [0, 32, 32, 32]}
    for more in ({}, {"encoding_format": "float"}, {"encoding_format": "base64"}):
        found = create(model="letters", input=[*expected], **more)
        vectors = [each.embedding for each in found.data]
        if more.get("encoding_format") == "base64":  # the SDK decodes only what it asks for itself
            raw = [base64.b64decode(each) for each in vectors]
            vectors = [[*struct.unpack(f"<{len(each) // 4}f", each)] for each in raw]
        assert vectors == list(expected.values()), (more, vectors)
        assert (found.model, found.usage.prompt_tokens, found.usage.total_tokens) == (
            *("letters", 2, 2),
        )
    (cut,) = create(model="letters", input="ab", dimensions=1 + 1).data
    assert abs(sum(each * each for each in cut.embedding) - 1) < 1e-6
    assert [each.id for each in client.models.list()] == ["letters"]
    for text, status in (([], 400), ([1, 2], 400), ("full", 429), ("broken", 500)):
        try:
            raise AssertionError(create(model="letters", input=text))
        except openai.APIStatusError as error:
            found = error.status_code, bool(error.body["message"])
        assert found == (status, True), text
    with contextlib.suppress(openai.NotFoundError):
        create(model="other", input="ab")
        raise AssertionError("another model answered")
    asyncio.run(_openai(http, list(expected.values())))
    body = json.dumps({"query": "red cat", "documents": ["dog", "cat"], "top_n": 1}).encode()
    request = urllib.request.Request(f"http://{http}/openai/v1/rerank", body)
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert json.load(answer)["results"] == [{"index": 1, "relevance_score": 1.0}]


async def _openai(http: str, expected: list[list[int]]) -> None:
    import openai

    async with openai.AsyncOpenAI(base_url=f"http://{http}/openai/v1", api_key="none") as client:
        calls = [client.embeddings.create(model="letters", input=["ab", ""]) for _ in range(32)]
        for found in await asyncio.gather(*calls):
            assert [each.embedding for each in found.data] == expected


def openapi(http: str, grpc: str, files: Path) -> None:
    """Schemathesis, with the description that the Open Inference Protocol has of itself."""
    import yaml
    from openapi_spec_validator import validate

    (source,) = files.rglob("open_inference_rest.yaml")
    schema = yaml.safe_load(source.read_text().replace("${", "{"))  # the $ would be of the path
    known = {"MODEL_NAME": ["any", "simple", "simple_string"], "MODEL_VERSION": ["1"]}
    for path in schema["paths"].values():
        for each in path.get("parameters", ()):
            each["schema"]["enum"] = known[each["name"]]
            each["example"] = known[each["name"]][0]
            if "post" in path:
                (body,) = path["post"]["requestBody"]["content"].values()
                tensor = {"name": "x", "shape": [2], "datatype": "FP32", "data": [0.5, 2]}
                body["example"] = {"inputs": [tensor]}
    with tempfile.TemporaryDirectory() as place:
        file = Path(place, "rest.yaml")
        file.write_text(yaml.safe_dump(schema))
        run = [sys.executable, "-m", "schemathesis.cli", "run", file, "--url", f"http://{http}"]
        always = ("--checks", "all", "--no-color", "--seed", "7", "--generation-database", "none")
        subprocess.run([*run, *always, "--phases", "examples"], check=True, cwd=place)
        # It has no codes for an unknown model, any tensors are valid there, and null is not.
        unlike = "status_code_conformance,positive_data_acceptance,negative_data_rejection"
        phases = (
            "--phases",
            "coverage,fuzzing",
            "--max-examples",
            "100",
            "--exclude-checks",
            unlike,
        )
        subprocess.run([*run, *always, *phases], check=True, cwd=place)
        # The description that the server has of itself.
        with urllib.request.urlopen(f"http://{http}/openapi.json", timeout=30) as answer:
            text = answer.read()
        validate(json.loads(text))
        file.with_suffix(".json").write_bytes(text)
        run[run.index(file)] = file.with_suffix(".json")
        # Its models take any values of JSON and raise for some, and a timeout may be 0.
        own = ("--phases", "coverage", "--exclude-checks", f"{unlike},not_a_server_error")
        subprocess.run([*run, *always, *own], check=True, cwd=place)


def protos(http: str, grpc: str, files: Path) -> None:
    """The messages of KServe and Triton, compiled; in two processes, for they have one name."""
    for name in ("open_inference_grpc", "grpc_service"):
        (source,) = files.rglob(f"{name}.proto")
        with tempfile.TemporaryDirectory() as place:
            command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{source.parent}"]
            out = (f"--python_out={place}", f"--grpc_python_out={place}")
            subprocess.run([*command, *out, *source.parent.glob("*.proto")], check=True)
            subprocess.run([sys.executable, __file__, "_call", grpc, place, name], check=True)


def _call(address: str, place: str, name: str) -> None:
    """Call each method that the server has, by the generated code."""
    import grpc

    sys.path.insert(0, place)
    pb = importlib.import_module(f"{name}_pb2")
    with grpc.insecure_channel(address) as channel:
        stub = importlib.import_module(f"{name}_pb2_grpc").GRPCInferenceServiceStub(channel)
        assert stub.ServerLive(pb.ServerLiveRequest()).live
        assert stub.ServerReady(pb.ServerReadyRequest()).ready
        assert stub.ServerMetadata(pb.ServerMetadataRequest()).name == "service-streamer"
        assert stub.ModelReady(pb.ModelReadyRequest(name="any", version="1")).ready
        assert not stub.ModelReady(pb.ModelReadyRequest(name="no_such")).ready
        found = stub.ModelMetadata(pb.ModelMetadataRequest(name="simple"))
        assert [(each.name, list(each.shape)) for each in found.inputs] == [
            ("INPUT0", [-1, 16]),
            ("INPUT1", [-1, 16]),
        ]
        request = pb.ModelInferRequest(model_name="any", id="7")
        request.inputs.add(name="x", datatype="UINT8", shape=[2])
        request.inputs[0].contents.uint_contents.extend([1, 255])
        for raw in (False, True):
            if raw:
                request.inputs[0].ClearField("contents")
                request.raw_input_contents.append(b"\x01\xff")
            answer = stub.ModelInfer(request)
            assert (answer.id, list(answer.raw_output_contents)) == ("7", [b"\x01\xff"])
        if name == "open_inference_grpc":
            return
        (answer,) = stub.ModelStreamInfer(iter([request]))
        assert list(answer.infer_response.raw_output_contents) == [b"\x01\xff"]
        stub.RepositoryModelUnload(pb.RepositoryModelUnloadRequest(model_name="count"))
        stub.RepositoryModelLoad(pb.RepositoryModelLoadRequest(model_name="count"))
        (found,) = stub.ModelStatistics(pb.ModelStatisticsRequest(name="any")).model_stats
        assert found.inference_stats.success.count > 0
        config = stub.ModelConfig(pb.ModelConfigRequest(name="simple")).config
        assert (config.max_batch_size, [each.name for each in config.input]) == (
            8,
            ["INPUT0", "INPUT1"],
        )
        index = stub.RepositoryIndex(pb.RepositoryIndexRequest(ready=True))
        assert "count" in {each.name for each in index.models}


def reflection(http: str, grpc: str, files: Path) -> None:
    """The database of grpcio-reflection, which learns the messages from the server."""
    from google.protobuf.descriptor_pool import DescriptorPool
    from grpc import insecure_channel
    from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
        ProtoReflectionDescriptorDatabase,
    )

    with insecure_channel(grpc) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        assert "inference.GRPCInferenceService" in database.get_services()
        pool = DescriptorPool(database)
        for name in database.get_services():
            assert pool.FindServiceByName(name).methods
        with contextlib.suppress(KeyError):
            pool.FindMessageTypeByName("inference.NoSuchMessage")
            raise AssertionError("an unknown message was found")


def perf(http: str, grpc: str, files: Path) -> None:
    """Triton's `perf_analyzer`, which ends if it cannot use the statistics."""
    program = Path(sys.prefix, "bin", "perf_analyzer")
    common = ["-m", "simple", "--concurrency-range", "4", "-p", "1000", "-s", "999"]
    for way in (
        ["-u", http],
        ["-u", grpc, "-i", "grpc"],
        ["-u", grpc, "-i", "grpc", "--async"],
        ["-u", grpc, "-i", "grpc", "--async", "--streaming"],
    ):
        done = subprocess.run([program, *common, *way], capture_output=True, text=True)
        printed = done.stdout + done.stderr
        assert done.returncode == 0, printed
        found = re.search(r"throughput: ([\d.]+) infer/sec, latency (\d+) usec", printed)
        assert found is not None, printed
        in_flight = float(found[1]) * int(found[2]) / 1e6
        assert 2 < in_flight < 8, printed
        assert re.search(r"queue \d+ usec \+ compute input 0 usec \+ compute infer \d+", printed)


def triton(http: str, grpc: str, files: Path) -> None:
    """Triton's own examples as they are, and what their others would ask."""
    states: list[str] = []
    pinging = threading.Thread(target=_keep_alive, args=(grpc, states))
    pinging.start()
    for example in sorted(files.rglob("*_client.py")):
        address = http if "http" in example.name else grpc
        subprocess.run([sys.executable, example, "-u", address], check=True, timeout=60)
    asyncio.run(_triton(http, grpc))
    pinging.join()
    assert states == ["IDLE", "CONNECTING", "READY"], states


def _keep_alive(address: str, states: list[str]) -> None:
    """Collect the states of a connection without calls, whose client pings each 10 s."""
    import tritonclient.grpc as triton

    keep_alive = triton.KeepAliveOptions(10_000, 5_000, True, 0)
    client = triton.InferenceServerClient(address, keepalive_options=keep_alive)
    client._channel.subscribe(lambda state: states.append(state.name))
    assert client.is_server_live()
    time.sleep(45)
    client.close()


async def _triton(http: str, grpc: str) -> None:
    import numpy as np
    import tritonclient.grpc.aio as by_grpc
    import tritonclient.http.aio as by_http

    for module, address in ((by_http, http), (by_grpc, grpc)):
        async with module.InferenceServerClient(address) as client:
            assert await client.is_server_live()
            assert await client.is_server_ready()
            assert await client.is_model_ready("any", "1")
            assert not await client.is_model_ready("no_such")
            for datatype, array in examples().items():
                given = module.InferInput("x", array.shape, datatype)
                given.set_data_from_numpy(array)
                answer = await client.infer("any", [given], request_id="7")
                np.testing.assert_array_equal(decoded(answer.as_numpy("output")), array)
            await client.unload_model("simple_int8")
            assert not await client.is_model_ready("simple_int8")
            await client.load_model("simple_int8")
            assert await client.is_model_ready("simple_int8")
            found = await client.get_inference_statistics("any", "1")
            config = await client.get_model_config("simple")
            if module is by_grpc:
                config = {"max_batch_size": config.config.max_batch_size}
                (count,) = [each.inference_count for each in found.model_stats]
            else:
                (count,) = [each["inference_count"] for each in found["model_stats"]]
            assert (config["max_batch_size"], count > 0) == (8, True)
    async with by_grpc.InferenceServerClient(grpc) as client:
        given = by_grpc.InferInput("x", [1], "INT32")
        given.set_data_from_numpy(np.array([3], "i4"))

        async def requests():
            yield {"model_name": "count", "inputs": [given]}

        pieces = [answer async for answer, error in client.stream_infer(requests())]
        assert [each.as_numpy("output").tolist() for each in pieces] == [[0], [1], [2]]


def post(url: str, model: str, body: bytes) -> bytes:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/v2/models/{model}/infer", body, headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read()


if __name__ == "__main__":
    check = globals()[sys.argv[1]]
    if check is _call:
        check(*sys.argv[2:])
    else:
        check(*sys.argv[2:4], Path(sys.argv[4]))
