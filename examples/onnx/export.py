"""Makes models/shapes/1/model.onnx: the network of examples/image_classification, without torch.

With torch, `torch.onnx.export` does this. What matters is the same: the first dimension varies.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper, save

HERE = Path(__file__).parent
WEIGHTS = HERE.parent / "image_classification" / "weights.npz"
SIDE = 48
CLASSES = 6


def nodes() -> list[NodeProto]:
    found = [
        helper.make_node("Transpose", ["pictures"], ["channels_first"], perm=[0, 3, 1, 2]),
        helper.make_node("Cast", ["channels_first"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Div", ["floats", "half"], ["scaled"]),
        helper.make_node("Sub", ["scaled", "one"], ["layer_0"]),
    ]
    for number in range(4):
        names = [f"features.{3 * number}.{part}" for part in ("weight", "bias")]
        conv, relu = f"conv_{number}", f"relu_{number}"
        found += [
            helper.make_node("Conv", [f"layer_{number}", *names], [conv], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", [conv], [relu]),
            helper.make_node(
                "MaxPool", [relu], [f"layer_{number + 1}"], kernel_shape=[2, 2], strides=[2, 2]
            ),
        ]
    return [
        *found,
        helper.make_node("ReduceMean", ["layer_4"], ["means"], axes=[2, 3], keepdims=0),
        helper.make_node(
            "Gemm", ["means", "classifier.weight", "classifier.bias"], ["logits"], transB=1
        ),
        helper.make_node("Softmax", ["logits"], ["scores"], axis=1),
    ]


def export(path: Path) -> None:
    pictures = helper.make_tensor_value_info(
        "pictures", TensorProto.UINT8, ["batch", SIDE, SIDE, 3]
    )
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", CLASSES])
    constants = {"half": np.float32(127.5), "one": np.float32(1), **np.load(WEIGHTS)}
    weights = [numpy_helper.from_array(np.asarray(each), name) for name, each in constants.items()]
    graph = helper.make_graph(nodes(), "shapes", [pictures], [scores], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    save(model, path)


if __name__ == "__main__":
    export(Path(*sys.argv[1:] or [HERE / "models/shapes/1/model.onnx"]))
