"""The ONNX files of `onnx_files`, and the same models in torch."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, load, numpy_helper, save

LAYERS, WIDTH, HEADS, TOKENS, FEATURES = 4, 256, 4, 16, 32
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


def perceptron(path: Path, layers: int = 6, width: int = WIDTH, outputs: int = 8) -> None:
    """Layers of one width and a last one, for tables."""
    graph, x = Graph(), "x"
    for before, after in itertools.pairwise((FEATURES, *[width] * layers, outputs)):
        x = graph.node("Relu", graph.node("MatMul", x, graph.matrix(before, after)))
    graph.save(path, {"x": (TensorProto.FLOAT, ["batch", FEATURES])}, outputs)


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


def tokens(least: int = TOKENS) -> Any:
    count = int(RANDOM.integers(least, TOKENS + 1))
    return RANDOM.integers(0, 1000, count), np.ones(count, "i8")


def in_torch(path: Path) -> Any:
    """The model of a file as a module of torch, with the weights of the file."""
    import torch
    from torch.nn import functional

    weights = [
        torch.from_numpy(numpy_helper.to_array(each).copy())
        for each in load(path).graph.initializer
        if len(each.dims) == 2
    ]

    class Perceptron(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = torch.nn.ParameterList(weights)

        def forward(self, x: Any) -> Any:
            for each in self.weights:
                x = torch.relu(x @ each)
            return x

    class Bert(Perceptron):
        def forward(self, ids: Any, mask: Any) -> Any:
            penalty = ((mask.float() - 1) * 1e4)[:, None, None]
            x = self.weights[0][ids]
            for layer in range(LAYERS):
                query, key, value, out, up, down = self.weights[1 + 6 * layer : 7 + 6 * layer]
                parts = [
                    (x @ each).unflatten(-1, (HEADS, -1)).transpose(1, 2)
                    for each in (query, key, value)
                ]
                seen = functional.scaled_dot_product_attention(*parts, attn_mask=penalty)
                x = functional.layer_norm(x + seen.transpose(1, 2).flatten(2) @ out, (WIDTH,))
                x = functional.layer_norm(x + torch.relu(x @ up) @ down, (WIDTH,))
            return x.mean(1)

    return (Perceptron if path.stem == "perceptron" else Bert)().eval().requires_grad_(False)
