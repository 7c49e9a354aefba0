"""The messages of gRPC are those of the protocol."""

import subprocess
import sys
from pathlib import Path

import pytest

service_pb2 = pytest.importorskip("tritonclient.grpc.service_pb2")
descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")

from service_streamer.server._grpc import messages  # noqa: E402

ROOT = Path(__file__).parents[3]


def shape(descriptor):
    """What the wire has of a message: its fields, and those of the messages in it."""
    return {
        field.number: (
            field.name,
            field.type,
            field.is_repeated,
            field.containing_oneof.name if field.containing_oneof else None,
            field.message_type.full_name if field.message_type else None,
        )
        for field in descriptor.fields
    }


def all_messages(descriptors):
    for each in descriptors:
        yield each
        yield from all_messages(each.nested_types)


PARTS = {f"inference.Model{each}" for each in (
    "Config", "DynamicBatching", "Input", "Output", "Statistics")}  # fmt: skip
"""messages of answers with more fields, which the server never sets"""


def test_each_message_has_the_fields_of_the_clients_message():
    ours = messages.service(messages.INFERENCE).file
    theirs = service_pb2.DESCRIPTOR.pool
    compared = list(all_messages(ours.message_types_by_name.values()))
    assert len(compared) > 20
    for each in compared:
        found, wanted = shape(each), shape(theirs.FindMessageTypeByName(each.full_name))
        if each.full_name in PARTS:
            wanted = {number: wanted.get(number) for number in found}
        assert found == wanted, each.full_name


def test_each_method_has_the_messages_of_the_clients_method():
    def methods(service):
        return {
            each.name: (
                each.input_type.full_name,
                each.output_type.full_name,
                each.client_streaming,
                each.server_streaming,
            )
            for each in service.methods
        }

    ours = methods(messages.service(messages.INFERENCE))
    theirs = methods(service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"])
    assert ours.items() <= theirs.items()


def test_the_descriptors_are_those_of_the_proto_files(tmp_path):
    pytest.importorskip("grpc_tools")
    made = tmp_path / "messages.binpb"
    tool = ROOT / "tests/tools/make_grpc_messages.py"
    subprocess.run([sys.executable, tool, "--output", made], check=True, timeout=60)
    kept = (Path(messages.__file__).parent / "messages.binpb").read_bytes()
    read = descriptor_pb2.FileDescriptorSet.FromString
    assert read(kept) == read(made.read_bytes())
