"""The threads that run ``predict_function``."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

from .._base.loadable import loadables
from .._base.options import Options
from .._engine.backend import weakly
from .._engine.waiting_room import EngineThreads
from .._models.model import name_of, whole
from .._models.serving import is_logged, serve_or_log
from .._placement import cores as _cores


class ModelThreads(EngineThreads):
    """A `Backend`: an engine and the threads that run a model.

    Args:
        model: what the threads run.
        name: of the model.
        options: of the engine.
        count: the number of threads.
    """

    def __init__(self, model: Any, name: str, options: Options, count: int) -> None:
        self._model = model
        self._name = name
        self._intra_op_threads: int | None = None  # of each thread, once they have started
        self._mode = torch_mode()
        super().__init__(options, count)

    def start(self) -> None:
        if not self._threads:
            self._intra_op_threads = _cores.cpu_threads(self._model)
            remedy = _cores.remedy_of(self._model)
            _cores.warn(self._name, self._count, self._intra_op_threads, remedy)
        super().start()

    def stats(self, timeout: float | None = None) -> dict[str, Any]:
        return {**super().stats(timeout), "intra_op_threads": self._intra_op_threads}

    def work(self) -> None:
        with self._mode():
            self.run_model()

    def run_model(self) -> None:
        """Answer batches until the engine is closed."""
        raise NotImplementedError


class Workers(ModelThreads):
    """Threads that run ``predict_function``."""

    def __init__(self, predict: Callable[[list[Any]], Any], options: Options, count: int) -> None:
        self._budget = options.budget
        self._loadables = loadables(predict)
        if self._loadables:
            self._ended_early = weakly(self._stop_unwanted)
        super().__init__(whole(predict), name_of(predict), options, count)

    def _stop_unwanted(self) -> None:
        for each in self._loadables:
            each.stop(self.engine.unwanted_threads)

    def run_model(self) -> None:
        predict, name = self._model, self._name
        while (unfinished := self.engine.run_batches(predict, is_logged)) is not None:
            serve_or_log(*unfinished, predict, self._budget, name)
            del unfinished  # requests that are still unanswered end with WorkerLost


def torch_mode() -> Callable[[], contextlib.AbstractContextManager[object]]:
    """Return what enters the mode of this thread in another one: no grad, inference, autocast.

    In torch they belong to a thread. Without torch, and with its defaults, nothing is entered.
    """
    torch: Any = sys.modules.get("torch")
    entered: list[Callable[[], Any]] = []
    with contextlib.suppress(Exception):  # another thread is just importing it
        if torch is not None and torch.is_inference_mode_enabled():
            entered.append(torch.inference_mode)
        elif torch is not None and not torch.is_grad_enabled():
            entered.append(torch.no_grad)
        for device in ("cpu", "cuda") if torch is not None else ():
            if torch.is_autocast_enabled(device):
                dtype = torch.get_autocast_dtype(device)
                entered.append(functools.partial(torch.autocast, device, dtype=dtype))

    @contextlib.contextmanager
    def enter() -> Iterator[None]:
        with contextlib.ExitStack() as modes:
            for mode in entered:
                modes.enter_context(mode())
            yield

    return enter
