"""Models that use the memory of their outputs again, as ONNX Runtime does with a binding."""

import collections

import numpy

Scores = collections.namedtuple("Scores", "all first")

MOST = 70  # items of a batch


class Reusing:
    """Its methods are models: the outputs of an item are its number, four times."""

    def __init__(self):
        self.out = numpy.zeros((MOST, 4))
        self.memory = bytearray(self.out.nbytes)
        self.foreign = numpy.frombuffer(self.memory).reshape(self.out.shape)
        self.list = []

    def _fill(self, batch, out=None):
        out = self.out if out is None else out
        out[: len(batch)] = numpy.array(batch)[:, None]
        return out[: len(batch)]

    def a_view(self, batch):
        return self._fill(batch)

    def the_whole(self, batch):
        if len(self.out) != len(batch):
            self.out = numpy.zeros((len(batch), 4))
        self._fill(batch)
        return self.out

    def rows(self, batch):
        return list(self._fill(batch))

    def arrays_of_its_own(self, batch):
        self._fill(batch)
        self.list = self.list or [self.out[place].copy() for place in range(MOST)]
        for place, item in enumerate(batch):
            self.list[place][:] = item
        return self.list[: len(batch)]

    def the_list(self, batch):
        for each, item in zip(self.list, batch, strict=False):
            each[:] = item
        self.list = self.list or [numpy.full(4, float(item)) for item in batch]
        return self.list

    def dicts(self, batch):
        return [{"name": "x", "row": row} for row in self._fill(batch)]

    def tuples(self, batch):
        return [("x", (row,)) for row in self._fill(batch)]

    def several(self, batch):
        rows = self._fill(batch)
        return Scores(rows, rows[:, 0])

    def memory_of_another(self, batch):
        return self._fill(batch, self.foreign)

    def masked(self, batch):
        return numpy.ma.MaskedArray(self._fill(batch), copy=False)


class Fresh:
    """Its methods return memory that nothing else has, so it need not be copied."""

    def _made(self, batch):
        return numpy.repeat(numpy.array(batch, float), 4)

    def an_array(self, batch):
        return numpy.array([[item] * 4 for item in batch], float)

    def a_view(self, batch):
        return self._made(batch).reshape(len(batch), 4)

    def rows(self, batch):
        return list(self._made(batch).reshape(len(batch), 4))

    def arrays(self, batch):
        return [numpy.full(4, float(item)) for item in batch]

    def dicts(self, batch):
        return [{"name": "x", "row": row} for row in self.rows(batch)]

    def several(self, batch):
        rows = self.a_view(batch)
        return Scores(rows, rows[:, 0])

    def immutable(self, batch):
        return numpy.frombuffer(self._made(batch).tobytes()).reshape(len(batch), 4)


def names_of(cls):
    return [name for name in vars(cls) if not name.startswith("_")]


def arrays_in(outputs):
    """All arrays and tensors in outputs."""
    if hasattr(outputs, "dtype"):
        return [outputs]
    if isinstance(outputs, dict):
        outputs = outputs.values()
    return [array for each in outputs if not isinstance(each, str) for array in arrays_in(each)]
