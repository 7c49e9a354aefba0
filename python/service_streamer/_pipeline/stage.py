"""Stage: describes one step of a pipeline."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from .._base import options as _options
from .._base.messages import no_such_option, short, wrong_option
from .._base.options_file import OptionsFile
from .._models.model import is_managed, name_of
from .._models.native import NativeSource
from .._processes.streamer import Streamer
from .._streamers.streamer import BaseStreamer, Component
from ..managed_model import ManagedModel
from .kinds import kind_for

_TARGETS = (BaseStreamer, ManagedModel, NativeSource)  # beside functions and classes
_OF_THE_PIPELINE = ("overflow", "worker_timeout")


class Stage:
    """One step of a `Pipeline`: what runs, how large its batches are, and with how many workers.

    ============================================  ==================================
    target                                        runs in
    ============================================  ==================================
    a function                                    `workers` threads of this process
    a function, with ``processes=True``           `workers` processes
    a `ManagedModel` class                        `workers` processes
    a `StepModel`, or its class                   one thread, or `workers` processes
    a `service_streamer.torch.NativeModel`        its own C++ threads
    a streamer, such as a `RedisStreamer`         what that streamer has
    ============================================  ==================================

    The pipeline creates and closes the streamer of a stage. A streamer that is given stays open
    when the pipeline is closed, and may have other callers.

    Args:
        target: what takes a list of items and returns one output per item.
        batch_size: most items per call of `target`. None: as in the file ``options``, or 1.
        workers: the number of threads or processes. Threads run at the same time only while
            `target` releases the GIL. None: ``worker_num`` of the file, or 1.
        processes: run a function in processes.
        name: in reports and in `Pipeline.stages`. None: the name of `target`. A lambda has none, so
            its stage is named after its position.
        **options: further options of `ThreadedStreamer` or `Streamer`, except ``overflow`` and
            ``worker_timeout``, which are those of the pipeline.

    Raises:
        TypeError, ValueError: an argument is invalid. `Pipeline` checks the target and the options.

    Example:
        >>> def double(numbers):
        ...     return [2 * number for number in numbers]
        >>> with Pipeline(Stage(double, batch_size=32, workers=2, max_latency=0.01)) as pipeline:
        ...     pipeline.stages["double"].stats().batch_size
        32
    """

    def __init__(
        self,
        target: Any,
        batch_size: int | None = None,
        *,
        workers: int | None = None,
        processes: bool = False,
        name: str | None = None,
        **options: Any,
    ) -> None:
        file = OptionsFile.of(options.get("options"))
        with file.blamed(file.values):
            for option, value in {**file.values, **options}.items():
                if option in _OF_THE_PIPELINE:
                    text = f"a Stage has no option {option}={short(value)}: it is an option of "
                    raise no_such_option(text + "the Pipeline")
        if "worker_num" in options:
            text = f"a Stage has no option worker_num={short(options['worker_num'])}: use workers"
            raise no_such_option(text)
        if not callable(target) and not isinstance(target, _TARGETS):
            raise TypeError(
                "the target of a Stage must be a function, a ManagedModel class, a NativeModel "
                f"or a streamer, not {target!r}"
            )
        given = options or (batch_size, workers, processes) != (None, None, False)
        if given and isinstance(target, BaseStreamer):
            raise wrong_option(
                f"{target!r} has its own options: leave them out of the Stage", TypeError
            )
        with file.blamed(file.values):
            size = file.values.get("batch_size", 1) if batch_size is None else batch_size
            self._batch_size = _options.count("batch_size", size)
            option = "worker_num" if workers is None else "workers"
            count = file.values.get("worker_num", 1) if workers is None else workers
            self._workers = _options.count(option, count)
        if isinstance(target, NativeSource) and (self._workers != 1 or processes):
            raise wrong_option(
                f"workers={self._workers} and processes={processes!r} are not for a native model: "
                "give its own option workers to the model",
                TypeError,
            )
        if name is not None and not _is_name(name):
            raise wrong_option(f"name must be a str without '/', not {name!r}")
        self.target = target
        _options.flag("processes", processes)
        self._processes = processes or is_managed(target)
        self._options = options
        self.name: str | None = name or self._default_name()

    @property
    def is_borrowed(self) -> bool:
        """True if the target is a streamer, which the pipeline does not close."""
        return isinstance(self.target, BaseStreamer)

    @property
    def capacity(self) -> int:
        """The number of items that its workers can have at the same time, or a guess."""
        if isinstance(self.target, BaseStreamer):
            return 4 * Component(self.target).options.batch_size  # the number of workers may change
        native = isinstance(self.target, NativeSource)
        return self._batch_size * (self.target.workers if native else self._workers)

    def make_streamer(self) -> BaseStreamer:
        """Return the streamer that runs the target.

        Raises:
            TypeError, ValueError: an option is invalid. The message names it.
            StreamerClosed: the streamer that was given is closed.
        """
        if isinstance(self.target, BaseStreamer):
            Component(self.target).check_open()
            return self.target
        kind = kind_for(self.target, self._processes)
        for option in self._options:
            if option not in inspect.signature(kind).parameters:
                of_processes = option in inspect.signature(Streamer).parameters
                hint = ": it needs processes=True" if of_processes else ""
                text = f"{self!r} has no option {option}={short(self._options[option])}{hint}"
                raise no_such_option(text)
        return kind(self.target, self._batch_size, worker_num=self._workers, **self._options)

    def __repr__(self) -> str:
        return f"<Stage {self.name or self.target!r}>"

    def _default_name(self) -> str | None:
        if isinstance(self.target, BaseStreamer):
            return Component(self.target).name.replace("/", "_")
        name = name_of(self.target).rpartition(".")[2]
        return None if name == "<lambda>" else name


def _is_name(name: object) -> bool:
    return isinstance(name, str) and name != "" and "/" not in name


def distinct(names: Sequence[str]) -> list[str]:
    """Return the names; add a number to those that have occurred before."""
    taken: list[str] = []
    for name in names:
        number, given = 1, name
        while name in taken:
            number += 1
            name = f"{given}-{number}"
        taken.append(name)
    return taken


def make_streamers(stages: Sequence[Stage]) -> list[BaseStreamer]:
    """Return the streamers of the stages. If one of them fails, close the others."""
    made: list[BaseStreamer] = []
    try:
        for stage in stages:
            made.append(stage.make_streamer())
    except BaseException:
        for stage, streamer in zip(stages, made, strict=False):
            if not stage.is_borrowed:
                streamer.close(drain=False, timeout=0)
        raise
    return made
