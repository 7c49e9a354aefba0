"""Values that models return, and what callers should get. Imported by forked workers."""

import collections
import dataclasses
import itertools
import types

import numpy

Several = collections.namedtuple("Several", "scores labels layers nothing")
Timing = type(__import__("time").gmtime())  # a struct sequence, as torch.return_types are


@dataclasses.dataclass
class ModelOutput(collections.OrderedDict):
    """As that of transformers: members are keys and attributes; those that are None are no keys."""

    logits: object = None
    hidden: object = None

    def __post_init__(self):
        for field in dataclasses.fields(self):
            if getattr(self, field.name) is not None:
                self[field.name] = getattr(self, field.name)

    def __reduce__(self):
        return type(self), (self.logits, self.hidden)


class Polars(list):
    """A Series of polars. The library itself warns of each later fork of this process."""

    __module__ = "polars.series"

    def __getitem__(self, index):
        found = super().__getitem__(index)
        return Polars(found) if isinstance(index, slice) else found

    def __reduce__(self):
        return as_polars, (list(self),)


def as_polars(numbers):
    return Polars(numbers)


polars = types.SimpleNamespace(concat=lambda pieces: Polars(itertools.chain(*pieces)))


class Table:
    """A table of pyarrow, as far as its type shows."""

    columns = property(lambda self: [self._numbers])
    schema = "a: int64"

    def __init__(self, numbers):
        self._numbers = list(numbers)

    def __len__(self):
        return len(self._numbers)

    def __getitem__(self, index):
        return Table(self._numbers[index]) if isinstance(index, slice) else self._numbers[index]

    def to_pylist(self):
        return [{"a": number} for number in self._numbers]


class Numbers(list):
    """A list of the user."""


class Pair(tuple):
    """A tuple of the user, without names."""


class Tagged(numpy.ndarray):
    """An array of the user."""


class AnyMapping(collections.UserDict):
    """As the BatchEncoding of transformers, which is a UserDict too."""


def column(numbers):
    return numpy.array(list(numbers), float)


def rows(numbers):
    return numpy.repeat(column(numbers)[:, None], 3, 1)


def masked(numbers):
    numbers = column(numbers)
    return numpy.ma.MaskedArray(numbers, mask=numbers % 2 == 1)


def several(numbers):
    numbers = list(numbers)
    return Several(rows(numbers), [str(each) for each in numbers], (column(numbers),), None)


def as_pandas(make):
    def made(numbers):
        import pandas

        return make(pandas, list(numbers))

    return made


# By name: what makes it of numbers, the type of its rows or an error, and the type of a slice or
# an error.
VALUES = {
    "list": (list, int, list),
    "a list of the user": (Numbers, int, list),
    "tuple": (tuple, int, tuple),
    "a tuple of the user": (Pair, int, list),
    "range": (lambda numbers: range(min(numbers), max(numbers) + 1), int, list),
    "deque": (collections.deque, int, list),
    "array": (rows, numpy.ndarray, numpy.ndarray),
    "an array of objects": (lambda n: numpy.array(list(n), object), int, numpy.ndarray),
    "an array of the user": (lambda n: rows(n).view(Tagged), Tagged, Tagged),
    "masked array": (masked, None, numpy.ma.MaskedArray),
    "masked rows": (
        lambda n: numpy.ma.MaskedArray(rows(n), mask=rows(n) % 2 == 1),
        numpy.ma.MaskedArray,
        numpy.ma.MaskedArray,
    ),
    "namedtuple": (several, Several, Several),
    "struct sequence": (lambda n: Timing([list(n)] * 9), Timing, Timing),
    "ModelOutput": (lambda n: ModelOutput(rows(n)), ModelOutput, ModelOutput),
    "polars": (Polars, int, Polars),
    "table": (Table, "outputs.to_pylist()", list),
    "dict": (lambda n: dict.fromkeys(n), "*outputs.values()", "*outputs.values()"),
    "UserDict": (lambda n: AnyMapping(dict.fromkeys(n)), "zip(*outputs", "zip(*outputs"),
    "MappingProxyType": (
        lambda n: types.MappingProxyType(dict.fromkeys(n)),
        "zip(*outputs",
        "zip(*outputs",
    ),
    "ChainMap": (
        lambda n: collections.ChainMap(dict.fromkeys(n)),
        "zip(*outputs",
        "zip(*outputs",
    ),
    "str": (lambda n: "x" * len(list(n)), "return a list", "return a list"),
    "set": (set, "return a list", "return a list"),
    "arrays in a tuple": (
        lambda n: (rows(n), column(n)),
        "list(zip(*x))",
        "list(zip(*x))",
    ),
    "as many arrays in a tuple": (
        lambda n: tuple(column(n) for _ in n),
        "list(x)",
        "list(x)",
    ),
}
PANDAS = {
    "frame": (
        as_pandas(lambda pandas, n: pandas.DataFrame({"a": n, "b": n})),
        'outputs.to_dict("records")',
        "DataFrame",
    ),
    "Series with a float index": (
        as_pandas(lambda pandas, n: pandas.Series(n, index=[7.5 * each for each in n])),
        None,
        "Series",
    ),
    "Categorical": (
        as_pandas(lambda pandas, n: pandas.Categorical([str(each) for each in n])),
        str,
        "Categorical",
    ),
    "extension array": (
        as_pandas(lambda pandas, n: pandas.array(n, dtype="Int64")),
        None,
        "IntegerArray",
    ),
    "Index": (as_pandas(lambda pandas, n: pandas.Index([str(i) for i in n])), str, "Index"),
    "groupby": (
        as_pandas(lambda pandas, n: pandas.DataFrame({"a": n, "b": n}).groupby("a")),
        "for _, group in outputs",
        "for _, group in outputs",
    ),
}
