"""The models of the tests of the server."""

from thread_models import double

from service_streamer.hub import ModelSpec, TensorSpec


def sums(batch):
    """Two outputs of two inputs."""
    return [{"sum": row["a"] + row["b"], "text": f"{row['a']}+{row['b']}"} for row in batch]


def upper(batch):
    return [text.upper() for text in batch]


def means(batch):
    return [image.mean() for image in batch]


def fails(batch):
    raise RuntimeError("the model is broken")


def count_to(batch):
    return [iter(range(number)) for number in batch]


MODELS = {
    "double": ModelSpec(double, batch_size=8),
    "upper": ModelSpec(upper, batch_size=8),
    "sums": ModelSpec(
        sums,
        batch_size=8,
        inputs={"a": TensorSpec("INT64"), "b": TensorSpec("INT64")},
        outputs={"sum": TensorSpec("INT64"), "text": TensorSpec("STRING")},
    ),
    "means": ModelSpec(
        means,
        batch_size=8,
        inputs={"image": TensorSpec("FP32", (2, -1))},
        outputs={"mean": TensorSpec("FP32")},
    ),
    "sizes": ModelSpec(
        lambda batch: [len(each) for each in batch],
        batch_size=8,
        inputs={"file": TensorSpec("BYTES")},
    ),
    "texts": ModelSpec(upper, batch_size=8, inputs={"text": TensorSpec("STRING")}),
    "fails": ModelSpec(fails, batch_size=8),
    "counts": ModelSpec(count_to, batch_size=8),
}
