"""Asks the server with the clients of others, each in an environment of its own.

    python tests/tools/clients.py [kserve triton ...]

The server runs from a wheel of this folder, in an environment that has only what its extras need.
The files of others come from their repositories, and none of them is kept here.
"""

import concurrent.futures
import contextlib
import platform
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from extras import ROOT, SUPPORT, alone, make_environment, make_wheel, report, run_alone
from waits import LONG, eventually

BUILD = ROOT / "build" / "clients"
ENVIRONMENTS = BUILD / "environments"
CLIENTS = {
    "kserve": ["kserve==0.21.0"],
    "mlserver": ["mlserver==1.7.1"],
    "openai": ["openai==3.57.0", "numpy"],
    "openapi": ["openapi-spec-validator==0.9.0", "schemathesis==4.32.5"],
    "protos": ["grpcio-tools==1.85.1"],
    "reflection": ["grpcio-reflection==1.85.1"],
    "perf": ["perf-analyzer==2.60.0"],
    "triton": ["tritonclient[http,grpc]==2.73.0"],
}
"""the checks of tests/clients.py, and what each of them needs"""
OF_PERF = (2, 38)
"""the oldest C library for which perf-analyzer is built"""
FILES = {
    "kserve/open-inference-protocol/d49cc23f89d709d87b210ef9449e273ae243984e": (
        "specification/protocol/open_inference_grpc.proto",
        "specification/protocol/open_inference_rest.yaml",
    ),
    "triton-inference-server/common/83adf7cf88a2f343005974dff3728be746de2d66": (
        "protobuf/grpc_service.proto",
        "protobuf/model_config.proto",
    ),
    "triton-inference-server/client/58a44caa0dce77303115302e6dbdf64626b2b093": tuple(
        f"src/python/examples/{name}.py"
        for name in (
            "grpc_explicit_byte_content_client",
            "grpc_explicit_int8_content_client",
            "grpc_explicit_int_content_client",
            "simple_grpc_aio_infer_client",
            "simple_grpc_async_infer_client",
            "simple_grpc_custom_args_client",
            "simple_grpc_infer_client",
            "simple_grpc_keepalive_client",
            "simple_grpc_string_infer_client",
            "simple_http_aio_infer_client",
            "simple_http_async_infer_client",
            "simple_http_infer_client",
            "simple_http_string_infer_client",
        )
    ),
}
"""the files, by repository and commit"""


def download() -> Path:
    """Get the files that are not there yet. Returns their folder."""
    folder = BUILD / "files"
    for source, paths in FILES.items():
        for path in paths:
            place = folder / source / Path(path).name
            if place.exists():
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            url = f"https://raw.githubusercontent.com/{source}/{path}"
            with urllib.request.urlopen(url, timeout=LONG) as answer:
                place.write_bytes(answer.read())
    return folder


@contextlib.contextmanager
def serving(python: Path) -> Iterator[list[str]]:
    """Serve the hub of foreign_models.py. Gives the addresses of HTTP and gRPC."""
    log = BUILD / "server.log"
    places = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--repository", "open")
    command = [python, "-m", "service_streamer", "serve", "foreign_models:HUB", *places]
    with log.open("w") as file:
        server = subprocess.Popen(command, cwd=SUPPORT, env=alone(), stderr=file)
    try:

        def addresses() -> list[str]:
            assert server.poll() is None, log.read_text()
            return re.findall(r"is served at \w+://(\S+)", log.read_text())

        eventually(lambda: len(addresses()) == 2)
        yield addresses()
    finally:
        server.terminate()
        assert server.wait(LONG) == 0, log.read_text()
    assert "Traceback" not in log.read_text(), log.read_text()


@contextlib.contextmanager
def serving_embeddings(python: Path) -> Iterator[str]:
    """Serve the application of foreign_embeddings.py. Gives its address."""
    log = BUILD / "embeddings.log"
    command = [python, "-m", "uvicorn", "--factory", "foreign_embeddings:make", "--port", "0"]
    command.append("--no-access-log")
    with log.open("w") as file:
        server = subprocess.Popen(command, cwd=SUPPORT, env=alone(), stderr=file)
    try:

        def addresses() -> list[str]:
            assert server.poll() is None, log.read_text()
            return re.findall(r"running on http://(\S+)", log.read_text())

        eventually(addresses)
        yield addresses()[0]
    finally:
        server.terminate()
        server.wait(LONG)


def main() -> None:
    """Ends with code 1 if any has failed."""
    chosen = sys.argv[1:] or [*CLIENTS]
    libc = tuple(map(int, platform.libc_ver()[1].split(".")))
    if "perf" in chosen and libc < OF_PERF:
        chosen.remove("perf")
        print("perf: not run, because perf-analyzer is built for a later C library")
    files = download()
    shutil.rmtree(ENVIRONMENTS, ignore_errors=True)
    wheel = make_wheel(BUILD / "wheel")
    python = make_environment(ENVIRONMENTS / "server", f"{wheel}[embeddings,grpc]")
    program = ROOT / "tests" / "clients.py"
    with (
        serving(python) as (http, grpc),
        serving_embeddings(python) as embeddings,
        concurrent.futures.ThreadPoolExecutor() as pool,
    ):
        jobs = [
            pool.submit(
                run_alone,
                ENVIRONMENTS / name,
                CLIENTS[name],
                program,
                name,
                embeddings if name == "openai" else http,
                grpc,
                files,
            )
            for name in chosen
        ]
        report(zip(chosen, [job.result for job in jobs], strict=True))


if __name__ == "__main__":
    main()
