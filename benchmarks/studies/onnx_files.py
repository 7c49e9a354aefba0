"""`OnnxModel` beside a lambda with `np.stack`, as one writes it: 1, 16 and 64 callers of one item.

Prints requests per second, and the processor time of a request. Both ways have one session with the
defaults that they come with, and take turns. `--spin` has the threads of `OnnxModel` spin, too.
Needs onnx and onnxruntime.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import numpy as np
import onnxruntime
from cases import common
from cases.threads import measure
from onnx import NodeProto, TensorProto, helper, numpy_helper, save

from service_streamer import ThreadedStreamer
from service_streamer.onnx import OnnxModel

ROUNDS = 5
CALLERS = (1, 16, 64)
LAYERS, WIDTH, HEADS, TOKENS, FEATURES = 4, 256, 4, 32, 32
RANDOM = np.random.default_rng(0)


class Graph:
    """Collects the nodes and weights of a file."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"value_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, [*inputs], [name], **attributes))
        return name

    def constant(self, value: Any) -> str:
        name = f"constant_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def matrix(self, rows: int, columns: int) -> str:
        values = RANDOM.standard_normal((rows, columns)) / rows**0.5
        return self.constant(values.astype("f4"))

    def save(self, path: Path, inputs: dict[str, tuple[int, list[Any]]], width: int) -> None:
        values = [
            helper.make_tensor_value_info(n, kind, shape) for n, (kind, shape) in inputs.items()
        ]
        output = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", width])
        self.nodes.append(helper.make_node("Identity", [self.nodes[-1].output[0]], ["y"]))
        graph = helper.make_graph(self.nodes, "graph", values, [output], self.weights)
        opset = [helper.make_opsetid("", 17)]
        save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)


def perceptron(path: Path) -> None:
    """6 layers of 256, for tables."""
    graph, x = Graph(), "x"
    for before in (FEATURES, *[WIDTH] * 5):
        x = graph.node("Relu", graph.node("MatMul", x, graph.matrix(before, WIDTH)))
    graph.save(path, {"x": (TensorProto.FLOAT, ["batch", FEATURES])}, WIDTH)


def bert(path: Path) -> None:
    """4 layers of 256 with 4 heads, and a mask."""
    graph = Graph()
    ones, zeros = (graph.constant(np.full(WIDTH, n, "f4")) for n in (1, 0))
    split = graph.constant([0, 0, HEADS, WIDTH // HEADS])
    merge = graph.constant([0, 0, WIDTH])
    scale = graph.constant(np.float32((WIDTH // HEADS) ** 0.5))
    hidden = graph.node("Sub", graph.node("Cast", "mask", to=1), graph.constant(np.float32(1)))
    penalty = graph.node("Mul", hidden, graph.constant(np.float32(1e4)))
    penalty = graph.node("Unsqueeze", penalty, graph.constant([1, 2]))
    x = graph.node("Gather", graph.matrix(1000, WIDTH), "ids")
    for _ in range(LAYERS):
        heads = []
        for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
            part = graph.node("MatMul", x, graph.matrix(WIDTH, WIDTH))
            heads.append(graph.node("Transpose", graph.node("Reshape", part, split), perm=order))
        scores = graph.node("Div", graph.node("MatMul", heads[0], heads[1]), scale)
        seen = graph.node("Softmax", graph.node("Add", scores, penalty), axis=-1)
        mixed = graph.node("Transpose", graph.node("MatMul", seen, heads[2]), perm=[0, 2, 1, 3])
        mixed = graph.node("Reshape", mixed, merge)
        more = graph.node("MatMul", mixed, graph.matrix(WIDTH, WIDTH))
        x = graph.node("LayerNormalization", graph.node("Add", x, more), ones, zeros)
        wide = graph.node("Relu", graph.node("MatMul", x, graph.matrix(WIDTH, 4 * WIDTH)))
        more = graph.node("MatMul", wide, graph.matrix(4 * WIDTH, WIDTH))
        x = graph.node("LayerNormalization", graph.node("Add", x, more), ones, zeros)
    graph.node("ReduceMean", x, axes=[1], keepdims=0)
    ids = (TensorProto.INT64, ["batch", "sequence"])
    graph.save(path, {"ids": ids, "mask": ids}, WIDTH)


def row() -> Any:
    return RANDOM.standard_normal(FEATURES).astype("f4")


def tokens() -> Any:
    return RANDOM.integers(0, 1000, TOKENS), np.ones(TOKENS, "i8")


def plain(path: Path) -> Callable[[list[Any]], Any]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    if len(names) == 1:
        return lambda batch: session.run(None, {names[0]: np.stack(batch)})[0]
    return lambda batch: session.run(
        None,
        {name: np.stack(each) for name, each in zip(names, zip(*batch, strict=True), strict=True)},
    )[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.5, help="for each figure of a round")
    parser.add_argument("--spin", action="store_true")
    options = parser.parse_args()
    spinning = {"session.intra_op.allow_spinning": options.spin}
    print(f"onnxruntime {onnxruntime.__version__}; requests per s (processor time of each in us)")
    with tempfile.TemporaryDirectory() as folder:
        for make, new_item in ((perceptron, row), (bert, tokens)):
            path = Path(folder, f"{make.__name__}.onnx")
            make(path)
            ways = {
                "OnnxModel": ThreadedStreamer(OnnxModel(path, session_options=spinning), 64),
                "plain": ThreadedStreamer(plain(path), 64),
            }
            for callers in CALLERS:
                items = [new_item() for _ in range(callers)]
                found: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
                for _ in range(ROUNDS):
                    for name, streamer in ways.items():
                        found[name].append(measure(streamer.predict, items, options.seconds))
                for name, rounds in found.items():
                    rate, cost = (
                        statistics.median(each[key] for each in rounds)
                        for key in ("per_s", "request_cpu_us")
                    )
                    told = f"{make.__name__:10} {callers:3} callers {name:10}"
                    print(f"{told} {rate:9.0f} ({cost:.0f})", flush=True)
            for streamer in ways.values():
                streamer.close()
    common.leave()


if __name__ == "__main__":
    main()
