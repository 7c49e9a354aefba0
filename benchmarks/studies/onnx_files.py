"""ONNX files: `OnnxModel` beside a lambda, beside mosec, and beside the same model of torch.

python -m studies.onnx_files [lambda] [serve] [torch]

All is measured in turn; a ratio is the median of those of the rounds. Seven minutes. `lambda` and
`torch` print requests per second, and the processor time of one in us, for 1, 16 and 64 callers of
one item. Each way has the defaults that it comes with. `--spin` has the threads of `OnnxModel`
spin, as those of the lambda do. `serve` needs wrk; `torch` needs torch, as in build/torch. All need
onnx and onnxruntime.
"""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import statistics
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import numpy as np
import onnxruntime
import venvs
from cases import common
from cases.threads import measure
from compare import adapters

from service_streamer import ThreadedStreamer
from service_streamer.onnx import OnnxModel
from studies.onnx_graphs import bert, in_torch, perceptron, row, tokens
from studies.server import CONNECTIONS
from studies.server import measure as measure_server

CALLERS = (1, 16, 64)
ROUNDS = {"lambda": 4, "serve": 3, "torch": 3}
LONGER = 1.5  # windows of bert, whose batches take 0.15 s


# ----------------------------------------------------------- beside a lambda with np.stack


def session_of(path: Path) -> Any:
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def stacked(path: Path) -> Callable[[list[Any]], Any]:
    session = session_of(path)
    names = [each.name for each in session.get_inputs()]
    if len(names) == 1:
        return lambda batch: session.run(None, {names[0]: np.stack(batch)})[0]
    return lambda batch: session.run(
        None,
        {name: np.stack(each) for name, each in zip(names, zip(*batch, strict=True), strict=True)},
    )[0]


def padded(path: Path) -> Callable[[list[Any]], Any]:
    session = session_of(path)

    def predict(batch: list[Any]) -> Any:
        longest = max(len(ids) for ids, _ in batch)
        all_ids, all_masks = np.zeros((2, len(batch), longest), "i8")
        for place, (ids, mask) in enumerate(batch):
            all_ids[place, : len(ids)] = ids
            all_masks[place, : len(mask)] = mask
        return session.run(None, {"ids": all_ids, "mask": all_masks})[0]

    return predict


def beside_lambdas(folder: Path, options: argparse.Namespace) -> None:
    spinning = {"session.intra_op.allow_spinning": True} if options.spin else None
    cases: dict[str, Any] = {
        "perceptron": (perceptron, row, stacked, {}),
        "bert": (bert, tokens, stacked, {}),
        "bert, lengths": (bert, functools.partial(tokens, 4), padded, {"collate": "pad"}),
    }
    for name, (make, new_item, plain, more) in cases.items():
        path = folder / f"{make.__name__}.onnx"
        make(path)
        model = OnnxModel(path, session_options=spinning, **more)
        in_turn(name, {"OnnxModel": model, "lambda": plain(path)}, {}, new_item, "lambda", options)


def in_turn(
    case: str,
    models: Mapping[str, Any],
    converted: Mapping[str, Callable[[Any], Any]],
    new_item: Callable[[], Any],
    part: str,
    options: argparse.Namespace,
) -> None:
    """Print what each model reaches, and the ratio of the first to the others.

    Args:
        case: its name.
        models: by name.
        converted: by the name of a model, what makes its item of an item.
        new_item: makes an item.
        part: of the study.
        options: of the command line.
    """
    seconds = options.seconds * (LONGER if case.startswith("bert") else 1)
    streamers = {name: ThreadedStreamer(model, 64) for name, model in models.items()}
    for callers in CALLERS:
        items = [new_item() for _ in range(callers)]
        found: dict[str, list[dict[str, float]]] = {name: [] for name in streamers}
        for _ in range(ROUNDS[part]):
            for name, streamer in streamers.items():
                own = list(map(converted.get(name, lambda item: item), items))
                found[name].append(measure(streamer.predict, own, seconds))
        first = next(iter(found.values()))
        for name, rounds in found.items():
            rate, cost = (
                median(each[key] for each in rounds) for key in ("per_s", "request_cpu_us")
            )
            ratio = median(a["per_s"] / b["per_s"] for a, b in zip(first, rounds, strict=True))
            told = f"{case:14} {callers:3} callers  {name:9} {rate:8.0f}/s ({cost:6.0f} us)"
            print(f"{told}  {next(iter(found))} / it: {ratio:.2f}", flush=True)
    for streamer in streamers.values():
        streamer.close()


def median(values: Any) -> float:
    return statistics.median(values)


# ------------------------------------------------------------------------ behind a server


SERVED = {
    "binary": ("floats", None),
    "binary, 1 thread": ("floats", 1),
    "JSON": ("floats-json", None),
}
"""the form of a request, and the threads of a batch; None: the default of each"""


def beside_mosec(folder: Path, options: argparse.Namespace) -> None:
    """A folder with a file and a model.toml, and mosec with the same session.

    As with the model of the other tables, a batch of 64 takes about 18 ms, and one of 1 much more
    than a 64th, for the weights do not fit into the caches. The clients run on the same cores.
    """
    if not shutil.which("wrk"):
        print("serve: left out, for wrk is missing")
        return
    version = folder / "models" / "model" / "1"
    version.mkdir(parents=True)
    perceptron(version / "model.onnx", layers=12, width=1024)
    os.environ["BENCH_MODELS"] = str(folder / "models")
    for case, (form, threads) in SERVED.items():
        text = f'model = "model.onnx"\n[options]\nbatch_size = {adapters.BATCH_SIZE}\n'
        if threads is not None:
            text += f"[onnx]\nintra_op_threads = {threads}\n"
        (version.parent / "model.toml").write_text(text)
        os.environ["BENCH_THREADS"] = str(threads or 0)
        runs: dict[str, list[dict[str, float]]] = {"onnx": [], "mosec-onnx": []}
        try:
            for _ in range(ROUNDS["serve"]):
                for server, found in runs.items():
                    found.append(measure_server(server, form, 3))
        except venvs.Unavailable as error:
            print(f"serve: left out: {error}")
            return
        for server, found in runs.items():
            rate, slowest = (median(each[key] for each in found) for key in ("per_s", "p99_ms"))
            ratio = median(
                a["per_s"] / b["per_s"] for a, b in zip(runs["onnx"], found, strict=True)
            )
            errors = sum(each["errors"] for each in found)
            told = f"{case:16} {CONNECTIONS} connections  {server:10} {rate:6.0f}/s"
            told += f"  p99 {slowest:5.1f} ms  {errors:.0f} errors"
            print(f"{told}  ours / it: {ratio:.2f}", flush=True)


# ------------------------------------------------------------- beside the same torch model


def beside_torch(folder: Path, options: argparse.Namespace) -> None:
    """The file, an AOTInductor package without the GIL, and the module itself."""
    try:
        import torch

        from service_streamer.torch import BatchedModel, NativeModel
        from service_streamer.torch import compile as make_package
    except ImportError as error:
        print(f"torch: left out: {error}")
        return

    def tensors(item: Any) -> Any:
        return tuple(map(torch.from_numpy, item)) if type(item) is tuple else torch.from_numpy(item)

    for make, new_item in ((perceptron, row), (bert, tokens)):
        path = folder / f"{make.__name__}.onnx"
        make(path)
        module = in_torch(path)
        example = [tensors(new_item()) for _ in range(64)]
        if make is bert:
            batch: Any = tuple(map(torch.stack, zip(*example, strict=True)))
        else:
            batch = torch.stack(example)
        make_package(module, batch, path.with_suffix(".pt2"), max_batch=64)
        models = {
            ".onnx": OnnxModel(path),
            ".pt2": NativeModel(path.with_suffix(".pt2")),
            "eager": BatchedModel(module, output="numpy"),
        }
        in_turn(make.__name__, models, {"eager": tensors}, new_item, "torch", options)


PARTS = {"lambda": beside_lambdas, "serve": beside_mosec, "torch": beside_torch}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], default=[])
    parser.add_argument("--seconds", type=float, default=1.2, help="for each figure of a round")
    parser.add_argument("--spin", action="store_true")
    options = parser.parse_args()
    print(f"onnxruntime {onnxruntime.__version__}, {os.cpu_count()} cores, "
          f"load average before {os.getloadavg()[0]:.2f}")  # fmt: skip
    for part in options.parts or PARTS:
        with tempfile.TemporaryDirectory() as folder:
            PARTS[part](Path(folder), options)
    common.leave()


if __name__ == "__main__":
    main()
