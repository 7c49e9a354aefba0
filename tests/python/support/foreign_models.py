"""The hub that the clients of others ask. Some of its models are those of Triton's examples."""

import numpy as np

from service_streamer.hub import ModelHub, ModelSpec, TensorSpec


def simple(rows):
    """The sum and the difference of two inputs, which are numbers or digits as text."""
    return [{"OUTPUT0": sum_of(row, 1), "OUTPUT1": sum_of(row, -1)} for row in rows]


def sum_of(row, sign):
    first, second = row["INPUT0"], row["INPUT1"]
    found = first.astype("i4") + sign * second.astype("i4")
    return found.astype(str) if first.dtype == object else found.astype(first.dtype)


def of_triton(datatype, **options):
    inputs, outputs = (
        {f"{kind}{number}": TensorSpec(datatype, (16,)) for number in (0, 1)}
        for kind in ("INPUT", "OUTPUT")
    )
    return ModelSpec(simple, batch_size=8, inputs=inputs, outputs=outputs, load="start", **options)


def identity(rows):
    return rows


def count(rows):
    """Stream the numbers below each."""
    for number in range(int(np.ravel(rows[0])[0])):
        yield [number]


HUB = ModelHub(
    {
        "simple": of_triton("INT32"),
        "simple_int8": of_triton("INT8"),
        "simple_string": of_triton("STRING"),
        "simple_identity": ModelSpec(
            identity,
            batch_size=8,
            inputs={"INPUT0": TensorSpec("STRING", (-1,))},
            outputs={"OUTPUT0": TensorSpec("STRING", (-1,))},
            load="start",
        ),
        "any": ModelSpec(identity, batch_size=8, load="start"),
        "count": ModelSpec(count, batch_size=1, load="start"),
    }
)
