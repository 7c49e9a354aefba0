"""Values of other packages, and what becomes of them. Imported by spawned workers.

By package and name: what makes a value of numbers, and what it is as a batch, as outputs, and as
outputs with ``output="batch"``: the name of a type (that of its rows, in the first two), or a part
of the error.
"""

import functools
import importlib
from collections.abc import Mapping


def table(package, **values):
    module = functools.partial(importlib.import_module, package)
    return {
        name: (lambda numbers, make=make: make(module(), list(numbers)), *expected)
        for name, (make, *expected) in values.items()
    }


def out(transformers, numbers):
    """A class of outputs, as those of models: with names, some of which are not given."""
    return output_class(transformers)(column(numbers), None, (column(numbers),))


@functools.cache
def output_class(transformers):
    import dataclasses

    @dataclasses.dataclass
    class Scores(transformers.utils.ModelOutput):
        logits: object = None
        loss: object = None
        hidden: object = None

    Scores.__module__, Scores.__qualname__ = __name__, "Scores"
    return Scores


def __getattr__(name):
    """Return the class, for pickle."""
    if name == "Scores":
        return output_class(importlib.import_module("transformers"))
    raise AttributeError(name)


def column(numbers):
    import numpy

    return numpy.repeat(numpy.array(numbers, float)[:, None], 2, 1)


PACKAGES = {
    "pandas": table(
        "pandas",
        DataFrame=(
            lambda pandas, n: pandas.DataFrame({"a": n, "b": n}),
            'batch.to_dict("records")',
            'outputs.to_dict("records")',
            "DataFrame",
        ),
        Series=(lambda pandas, n: pandas.Series(n), "int", "int", "Series"),
        Categorical=(
            lambda pandas, n: pandas.Categorical([str(each) for each in n]),
            *("str", "str", "Categorical"),
        ),
    ),
    "polars": table(
        "polars",
        DataFrame=(
            lambda polars, n: polars.DataFrame({"a": n}),
            *("batch.to_dicts()", "outputs.to_dicts()", "DataFrame"),
        ),
        LazyFrame=(
            lambda polars, n: polars.LazyFrame({"a": n}),
            *("collect().to_dicts()", "collect().to_dicts()", "has no length"),
        ),
        Series=(lambda polars, n: polars.Series("a", n), "int", "int", "Series"),
    ),
    "pyarrow": table(
        "pyarrow",
        Table=(
            lambda pyarrow, n: pyarrow.table({"a": n}),
            *("batch.to_pylist()", "outputs.to_pylist()", "Table"),
        ),
        RecordBatch=(
            lambda pyarrow, n: pyarrow.RecordBatch.from_pydict({"a": n}),
            *("batch.to_pylist()", "outputs.to_pylist()", "RecordBatch"),
        ),
        Array=(lambda pyarrow, n: pyarrow.array(n), "Int64Scalar", "Int64Scalar", "Int64Array"),
        ChunkedArray=(
            lambda pyarrow, n: pyarrow.chunked_array([n]),
            *("Int64Scalar", "Int64Scalar", "list"),
        ),
    ),
    "transformers": table(
        "transformers",
        BatchEncoding=(
            lambda transformers, n: transformers.BatchEncoding({"ids": column(n)}),
            *("zip(*batch.values())", "zip(*outputs.values())", "zip(*outputs.values())"),
        ),
        ModelOutput=(out, "zip(*batch.values())", "Scores", "Scores"),
    ),
}


def plain(value):
    """Return the value as one of Python's types, to compare it."""
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if hasattr(value, "columns"):
        for method in ("to_pylist", "to_dicts"):
            if hasattr(value, method):
                return getattr(value, method)()
        return value.to_dict("records")
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    for method in ("to_pylist", "to_list", "tolist", "as_py", "item"):
        if hasattr(value, method):
            return getattr(value, method)()
    return value


def model(batch):
    """Return the value of the package and name in each item, which has a number, too."""
    package, name, _ = batch[0]
    return PACKAGES[package][name][0]([number for *_, number in batch])


def kinds(batch):
    """Return the type of each item, and its value."""
    return [(type(each).__name__, plain(each)) for each in batch]
