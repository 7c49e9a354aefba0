"""`OnnxModel`: an ONNX file as a predict function on items."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Collection, Sequence
from typing import Any, get_args

from .._base.errors import OutputSizeMismatch, WorkerLost
from .._base.loadable import Loadable
from .._base.messages import short, wrong_option
from .._base.model_errors import NotRun
from .._base.options import count, one_of
from .._base.types import FileCollate, Items
from .._engine import lifecycle
from .._placement.machine import thread_count
from .._waiting.threads import original
from ..torch import ModelFileError
from ._batches import Memory, cut, join, parts
from ._file import TensorInfo, read_file
from ._items import Array, Reader
from ._session import (
    CPU,
    Provider,
    SessionOptions,
    check_installed,
    check_providers,
    check_session_options,
    make_session,
    names_of,
    raise_memory_error,
    run_options,
)
from ._shapes import choose, find_cuts, fixed_batch


class OnnxModel(Loadable):
    """A predict function that runs an ONNX file with ONNX Runtime.

    Give it to any streamer or `RedisWorker` in place of a function, or call it, such as in a
    `ManagedModel`. It can be pickled. A streamer loads the file where the model runs, so in each
    worker process; a call does so, too. In a forked child it is loaded again.

    An item is an input of the file without the dimension of the batch: an array, a tensor of torch
    on any device, or numbers and text of Python. With several inputs it is a mapping by name, such
    as a ``BatchEncoding``, or a tuple or list in the order of the file. Arrays must have exactly
    the types of the inputs. An item that does not fit fails with a TypeError or ValueError that
    names the input. Other items are not affected. Items must not be changed until they are
    answered.

    Each caller gets a row of the output for each item: an array, or a dict of them by name if there
    are several outputs. The rows of a batch share its memory.

    If the first dimension of the inputs is fixed in the file, batches are filled up to that size.

    Args:
        path: of the ``.onnx`` file. External data lies beside it.
        providers: the execution providers, the preferred one first: names, or pairs of a name and
            its options. None: the CPU.
        collate: "stack": only items of the same shape share a batch; items of several shapes run
            one after the other. "pad": the first dimension of each input is a sequence where the
            file lets it vary, and is padded at its end to the longest of the batch. An output whose
            dimension has the same name in the file is cut to the length of its item.
        pad_value: a number, or a dict with a value for each input whose padding is not 0.
        intra_op_threads: the number of threads that compute one batch. None: the number of cores
            divided by the number of workers.
        session_options: attributes of ``onnxruntime.SessionOptions`` by name, and entries of its
            configuration, whose names have dots. Or a function that returns the options. Threads
            that wait for work spin for 100 us (before ONNX Runtime 1.26: not at all) unless an
            entry says otherwise.
        outputs: the names of the outputs to compute. None: all.

    Raises:
        FileNotFoundError: the file does not exist.
        ModelFileError: the file is not an ONNX file, is damaged, or cannot make batches. The
            message has the remedy. `load` raises it if ONNX Runtime cannot load the file.
        ValueError: a setting is wrong. The message names the setting and its value.
        ImportError: onnxruntime or numpy is missing.

    Attributes:
        inputs: the inputs of the file.
        outputs: the outputs that callers get.

    Example:
        >>> from onnx import TensorProto, helper, save
        >>> def value(name):
        ...     return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 2])
        >>> node = helper.make_node("Neg", ["numbers"], ["negative"])
        >>> graph = helper.make_graph([node], "example", [value("numbers")], [value("negative")])
        >>> opset = [helper.make_opsetid("", 17)]
        >>> save(helper.make_model(graph, opset_imports=opset, ir_version=8), "model.onnx")
        >>> model = OnnxModel("model.onnx")
        >>> with ThreadedStreamer(model, batch_size=64) as streamer:
        ...     streamer.predict([[1.0, 2.0]])
        [array([-1., -2.], dtype=float32)]
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        providers: str | Sequence[Provider] | None = None,
        collate: FileCollate = "stack",
        pad_value: Any = 0,
        intra_op_threads: int | None = None,
        session_options: SessionOptions | None = None,
        outputs: Sequence[str] | None = None,
    ) -> None:
        check_installed()
        one_of("collate", collate, get_args(FileCollate))
        if intra_op_threads is not None:
            count("intra_op_threads", intra_op_threads)
        check_session_options(session_options, intra_op_threads)
        if collate != "pad" and not (isinstance(pad_value, int) and pad_value == 0):
            raise wrong_option(f'pad_value={short(pad_value)} is for collate="pad"')
        self._path = os.fspath(path)
        self._given = {
            "providers": providers,
            "collate": collate,
            "pad_value": pad_value,
            "intra_op_threads": intra_op_threads,
            "session_options": session_options,
            "outputs": outputs,
        }
        self.pads = collate == "pad"
        values = read_file(path)
        self.inputs: tuple[TensorInfo, ...] = values.inputs
        self._rows = fixed_batch(self._path, self.inputs)
        self.outputs: tuple[TensorInfo, ...] = choose(
            self._path, values.outputs, outputs, self._rows
        )
        self._providers = check_providers(providers)
        self._reader = Reader(self.inputs, collate == "pad")
        paddings, dtypes = self._reader.paddings(pad_value), self._reader.dtypes
        names = [each.name for each in self.inputs]
        self._feeds = list(zip(range(len(names)), names, paddings, dtypes, strict=True))
        self._names = [each.name for each in self.outputs]
        self._cuts = find_cuts(self._path, self.inputs, self.outputs, self._reader.padded)
        self._workers = 1
        self._session: Any = None
        self._reset_after_fork()
        lifecycle.watch(self)

    def __call__(self, batch: Sequence[Any]) -> Items[Any]:
        """Run the model on some items.

        Returns:
            An array with a row for each item; a list if there are several outputs, or rows that are
            cut or differ in shape. An item that does not fit has its exception in the list. With a
            single item, the exception is raised.

        Raises:
            OutputSizeMismatch: an output does not have one row for each item.
            MemoryError: there is too little memory.
            Exception: any exception of ONNX Runtime.
        """
        items = list(batch)
        if not items:
            return []
        session = self._load()
        groups, failed = self._reader.read_all(items)
        try:
            memory = self._memories.pop()  # another thread may have taken the last one
        except IndexError:
            memory = Memory()
        thread, options = self._ident(), self._run_options()
        self._runs[thread] = options
        try:
            found = [
                (part, self._run(session, options, memory, columns))
                for places, all_columns in groups
                for part, columns in parts(places, all_columns, self._rows)
            ]
        except Exception:
            if options.terminate:
                raise NotRun(
                    WorkerLost("the batch was stopped: all of its requests had ended")
                ) from None
            raise
        finally:
            self._runs.pop(thread, None)  # a signal handler may have run it in between
            self._memories.append(memory)
        return join(found, failed, len(items))  # type: ignore[no-any-return]

    def load(self, workers: int = 1) -> None:
        """Load the file in this process, unless it is loaded. Blocks.

        A streamer calls it before its first request.

        Args:
            workers: the number of threads that will call the model, which share the cores.

        Raises:
            ModelFileError: ONNX Runtime cannot load or run it. The message has the reason.
            ValueError: a session option is wrong.
            MemoryError: there is too little memory.

        Example:
            >>> OnnxModel("missing.onnx").load()
            Traceback (most recent call last):
            FileNotFoundError: the model file missing.onnx does not exist
        """
        self._workers = workers
        self._load()

    def stop(self, unwanted: Callable[[], Collection[int]]) -> None:
        """Stop the runs of some threads. A streamer calls it when no caller waits for them.

        Args:
            unwanted: returns the idents of the threads. A run that begins after this call goes on.

        Example:
            >>> OnnxModel("missing.onnx").stop(lambda: [])
            Traceback (most recent call last):
            FileNotFoundError: the model file missing.onnx does not exist
        """
        runs = self._runs.copy()  # before it is known which are unwanted: these threads run on
        for thread in unwanted():
            if thread in runs:
                runs[thread].terminate = True

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(type(self), self._path, **self._given), ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._path} on {names_of(self._providers)[0]}>"

    def _load(self) -> Any:
        if self._session is None:
            with self._lock:
                if self._session is None:
                    threads = self._given["intra_op_threads"]
                    threads = threads or max(1, thread_count() // self._workers)
                    session, threads = make_session(
                        self._path, self._providers, threads, self._given["session_options"]
                    )
                    self._check_names(session)
                    self._run_options: Callable[[], Any] = run_options()
                    is_cpu = names_of(self._providers)[0] == CPU
                    self.intra_op_threads = threads if is_cpu else None
                    self._session = session
        return self._session

    def _check_names(self, session: Any) -> None:
        """Raise ModelFileError if the file is not the one that was read before."""
        names = [each.name for each in session.get_inputs()]
        outputs = {each.name for each in session.get_outputs()}
        if names != [each.name for each in self.inputs] or not outputs.issuperset(self._names):
            raise ModelFileError(
                self._path, "was replaced by one with other inputs or outputs: make the model again"
            )

    def _reset_after_fork(self) -> None:
        if self._session is not None:
            # Its threads are those of the parent: to close it would wait for them for ever.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._session))
            self._session = None
        self._lock: Any = original("_thread", "allocate_lock")()
        self._ident: Callable[[], int] = original("_thread", "get_ident")
        self._memories: list[Memory] = []
        self._runs: dict[int, Any] = {}

    # -------------------------------------------------------------------- one run

    def _run(
        self, session: Any, options: Any, memory: Memory, columns: Sequence[Sequence[Array]]
    ) -> Any:
        """Run the items of one group. Return an array of their rows, or a list."""
        count = len(columns[0])
        rows = self._rows or count
        feeds = {
            name: memory.assemble(place, columns[place], rows, padding, dtype)
            for place, name, padding, dtype in self._feeds
        }
        try:
            found = session.run(self._names, feeds, options)
        except Exception as error:
            raise_memory_error(error)
            raise
        outputs = []
        for name, array in zip(self._names, found, strict=True):
            if not array.ndim or len(array) != rows:
                received = len(array) if array.ndim else None
                detail = f"output {name!r} of the model has the shape {array.shape}"
                raise OutputSizeMismatch(rows, received, detail)
            if memory.shares(array, feeds):  # the file returns its input
                array = array.copy()
            array = array if rows == count else array[:count]
            cuts = self._cuts[name]
            outputs.append(cut(name, array, cuts, columns) if cuts else array)
        if len(outputs) == 1:
            return outputs[0]
        return [dict(zip(self._names, row, strict=True)) for row in zip(*outputs, strict=True)]
