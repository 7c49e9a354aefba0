"""All that is to be looked at when there is a GPU for an hour: `make first-gpu-hour`.

Steps of at most eight minutes. Each adds its part to the report in build/first-gpu-hour as soon as
it has ended; one that fails, or takes too long, does not stop the others. A second call goes on
where the first was ended; `--again STEP` repeats a step. Nothing is downloaded.
"""

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 480.0
LEFT_OUT = 77
"""the status of a command that cannot run here"""
TAIL = 12_000
"""characters of its output that a step keeps"""

# What is there counts as up to date, so make installs nothing.
MAKE = "make " + " ".join(
    f"-o {each}"
    for each in (
        *(".venv/.tools", ".venv/.installed"),
        *("build/torch/.installed", "build/weights/.installed"),
    )
)
PYTEST = "{python} -m pytest -q -p no:cacheprovider {plugin} tests/python/native"


@dataclass(frozen=True)
class Step:
    """A command of the shell with a limit of seconds."""

    name: str
    about: str
    command: str
    limit: float = LIMIT


@dataclass(frozen=True)
class Result:
    """How a step ended: "passed", "failed", "left out" or "ended after … s"."""

    name: str
    about: str
    command: str
    outcome: str
    seconds: float
    output: str


def own(name: str) -> str:
    """One of the steps that are functions of gpu_steps.py."""
    return f"{{python}} tests/tools/gpu_steps.py {name}"


def command_if(program: str, command: str) -> str:
    """The command, left out where there is no such program."""
    instead = f"echo 'left out: there is no {program}'; exit {LEFT_OUT}"
    return f"command -v {program} >/dev/null || {{{{ {instead}; }}}}; {command}"


STEPS = (
    Step("machine", "the machine, its driver and its torch", "nvidia-smi; nvcc --version; "
         "{python} -m torch.utils.collect_env", 120),
    Step("symbols", "the functions of torch and CUDA, with their signatures",
         "{python} tests/tools/torch_symbols.py build/torch", 240),
    Step("build", "the module with kernels, for this torch", f"{MAKE} build/native/.built{{simulation}}"),
    Step("kernels", "the kernels, compared with the CPU: the first half of make test-cuda",
         command_if("nvcc", f"{MAKE} test-cuda TORCH=")),
    Step("sanitizer", "the same under compute-sanitizer", command_if("compute-sanitizer",
         "compute-sanitizer --error-exitcode 1 build/cuda/tests/cpp/cuda_test")),
    Step("tests", "the Python tests that need a GPU: the second half of make test-cuda",
         f"SERVICE_STREAMER_EXPECT_CUDA=1 {PYTEST} -m 'torch and needs_cuda'"),
    Step("package", "a .pt2 from its compilation to its outputs",
         f"{PYTEST} -m torch -k 'a_package_runs_on_the_gpu or has_kernels'"),
    Step("overlap", "streams: a copy beside a computation", own("overlap"), 120),
    Step("pinned", "copies from pinned memory", own("pinned"), 120),
    Step("memory", "what is learned from too little memory", own("memory"), 240),
    Step("workers", "two worker processes on one GPU, with and without MPS", own("workers"), 240),
    Step("budget", "gpu_memory_budget", own("budget"), 240),
    *(Step(f"figures-{case}", f"the figures of the case cuda: {case}",
           f"{{only_real}}cd benchmarks && {{python}} -m cases.cuda --case {case}")
      for case in ("images", "ragged", "pipeline")),
)  # fmt: skip


def run(step: Step, environment: dict[str, str]) -> Result:
    """Run a step, and end all that it has started when its time is over."""
    simulated = "SERVICE_STREAMER_SIMULATED_CUDA" in environment
    command = step.command.format(
        python=shlex.quote(sys.executable),
        plugin="-p simulated_cuda" if simulated else "",
        only_real=f"echo 'left out: a simulated GPU'; exit {LEFT_OUT}; " if simulated else "",
        simulation=" && .venv/bin/cmake --build build/native --target simulated_cuda"
        if simulated
        else "",
    )
    began = time.monotonic()
    with subprocess.Popen(
        ["bash", "-c", command],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=step.limit)
            status = {0: "passed", LEFT_OUT: "left out"}
            outcome = status.get(process.returncode, "failed")
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            outcome = f"ended after {step.limit:g} s"
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    text = output.decode(errors="replace")[-TAIL:]
    took = round(time.monotonic() - began, 1)
    return Result(step.name, step.about, command, outcome, took, text)


def write(folder: Path, steps: tuple[Step, ...]) -> dict[str, str]:
    """Make the report of the steps that have ended. Returns their outcomes."""
    results = {}
    for step in steps:
        file = folder / f"{step.name}.json"
        if file.exists():
            results[step.name] = Result(**json.loads(file.read_text()))
    lines = ["# The first hour on a GPU", "", "| step | outcome | seconds |", "|---|---|---|"]
    lines += [f"| {each.name} | {each.outcome} | {each.seconds} |" for each in results.values()]
    for each in results.values():
        lines += ["", f"## {each.name}: {each.about}", "", "```text", f"$ {each.command}"]
        lines += [each.output.rstrip(), "```"]
    (folder / "report.md").write_text("\n".join(lines) + "\n")
    return {name: result.outcome for name, result in results.items()}


def hour(
    steps: tuple[Step, ...], folder: Path, environment: dict[str, str], again: list[str]
) -> int:
    """Run the steps that have not ended yet, and those to be repeated. Returns the status."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in again:
        (folder / f"{name}.json").unlink(missing_ok=True)
    for step in steps:
        file = folder / f"{step.name}.json"
        if file.exists():
            continue
        print(f"{step.name}: {step.about}", flush=True)
        result = run(step, environment)
        part = file.with_suffix(".part")
        part.write_text(json.dumps(asdict(result), indent=1))
        part.replace(file)
        write(folder, steps)
        print(f"{step.name}: {result.outcome}, {result.seconds} s", flush=True)
    outcomes = write(folder, steps)
    bad = [name for name, outcome in outcomes.items() if outcome not in ("passed", "left out")]
    print(f"{folder / 'report.md'}: " + (f"look at {', '.join(bad)}" if bad else "all passed"))
    return 1 if bad else 0


def main() -> int:
    """Run the hour, or its rehearsal on simulated GPUs."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = [step.name for step in STEPS]
    parser.add_argument("--again", metavar="STEP", action="append", default=[], choices=names)
    parser.add_argument("--rehearse", action="store_true", help="on two GPUs that the CPU plays")
    options = parser.parse_args()
    folder = ROOT / "build" / ("gpu-rehearsal" if options.rehearse else "first-gpu-hour")
    places = [ROOT / "build/torch", ROOT / "build/weights"]
    environment = dict(os.environ, PIP_NO_INDEX="1")
    environment["PATH"] = f"{environment['PATH']}:/usr/local/cuda/bin"
    if options.rehearse:
        places.append(ROOT / "tests/simulated_cuda")
        library = ROOT / "build/native/tests/simulated_cuda/simulated_cuda.so"
        environment["SERVICE_STREAMER_SIMULATED_CUDA"] = str(library)
    environment["PYTHONPATH"] = os.pathsep.join(map(str, places))
    return hour(STEPS, folder, environment, options.again)


if __name__ == "__main__":
    sys.exit(main())
