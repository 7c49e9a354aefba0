"""The example of a model server: it runs as its manifests say, and they are valid."""

import functools
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import web_services
from ports import reserve_port
from waits import eventually
from web_services import LONG

yaml = pytest.importorskip("yaml")
pytest.importorskip("uvicorn")
grpc = pytest.importorskip("grpc")
pytest.importorskip("tritonclient.grpc")

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[3] / "examples" / "model_server"
running = functools.partial(web_services.running, FOLDER)


def documents(file):
    return list(yaml.safe_load_all((FOLDER / file).read_text()))


def container(file):
    """The container of a Deployment, or of a runtime for KServe."""
    first = documents(file)[0]
    spec = first["spec"] if first["kind"] == "ServingRuntime" else first["spec"]["template"]["spec"]
    (found,) = spec["containers"]
    return found


def scraped_port(file):
    first = documents(file)[0]["spec"]
    if file == "kserve.yaml":
        return first["annotations"]["prometheus.kserve.io/port"]
    return first["template"]["metadata"]["annotations"]["prometheus.io/port"]


def healthy(probe, ports):
    """Whether a probe finds the server healthy."""
    if (get := probe.get("httpGet")) is not None:
        try:
            return httpx.get(f"http://127.0.0.1:{ports[get['port']]}{get['path']}").is_success
        except httpx.TransportError:
            return False
    check = probe["grpc"]
    service = check["service"].encode()
    with grpc.insecure_channel(f"127.0.0.1:{ports[check['port']]}") as channel:
        ask = channel.unary_unary("/grpc.health.v1.Health/Check")
        try:
            return ask(b"\x0a" + bytes([len(service)]) + service) == b"\x08\x01"  # SERVING
        except grpc.RpcError:
            return False


PROBES = ("startupProbe", "readinessProbe", "livenessProbe")


@contextmanager
def serving(arguments, models, folder=FOLDER):
    """Run the server with the arguments of a container. Its ports here, by those in there."""
    there = [int(port) for port in re.findall(r"0\.0\.0\.0:(\d+)", " ".join(arguments))]
    keepers = [reserve_port() for _ in there]
    ports = {port: each.getsockname()[1] for port, each in zip(there, keepers, strict=True)}
    words = [re.sub(r"/(app|mnt)/models", str(models), word) for word in arguments]
    words = [
        re.sub(r"0\.0\.0\.0:(\d+)", lambda m: f"127.0.0.1:{ports[int(m[1])]}", word)
        for word in words
    ]
    for each in keepers:  # the server refuses a port that another socket has
        each.close()
    with running("-m", "service_streamer", "serve", *words) as process:
        yield ports
    assert process.returncode == 0


def scores(port, *sentences):
    """What the model says; None: it does not answer yet."""
    url = f"http://127.0.0.1:{port}/models/sentiment:predict"
    try:
        return httpx.post(url, json={"instances": sentences}).json()["predictions"]
    except httpx.TransportError:
        return None


@pytest.mark.parametrize("file", ["kubernetes.yaml", "kserve.yaml"])
def test_what_a_manifest_starts_answers_and_is_healthy(file):
    found = container(file)
    assert found["args"][0] in ("/app/models", "/mnt/models")
    with serving(found["args"], FOLDER / "models") as ports:
        assert ports.keys() == {port["containerPort"] for port in found["ports"]}
        for probe in PROBES:
            eventually(lambda probe=probe: healthy(found[probe], ports), LONG)
        http, rpc, monitor = ports.values()
        assert scores(http, "what a good day", "so sad") == [1.0, -1.5]
        command = [sys.executable, "client.py", f"127.0.0.1:{rpc}", "what a good day"]
        assert subprocess.check_output(command, cwd=FOLDER) == b"+1.0  what a good day\n"
        assert monitor == ports[int(scraped_port(file))]
        metrics = httpx.get(f"http://127.0.0.1:{monitor}/metrics").text
        assert 'service_streamer_server_requests_in_progress{protocol="http"} 0.0' in metrics


def test_a_new_version_needs_no_restart(tmp_path):
    shutil.copytree(FOLDER / "models", tmp_path / "models")
    versions = tmp_path / "models" / "sentiment"
    with serving(container("kubernetes.yaml")["args"], tmp_path / "models") as ports:
        http = ports[8000]
        eventually(lambda: scores(http, "good") == [1.0], LONG)
        shutil.copytree(versions / "1", versions / "new")
        (versions / "new" / "weights.json").write_text('{"good": 5}')
        (versions / "new").rename(versions / "2")
        eventually(lambda: scores(http, "good") == [5.0], LONG)


def test_the_container_does_not_run_as_root():
    lines = (FOLDER / "Dockerfile").read_text().splitlines()
    assert 'ENTRYPOINT ["python", "-m", "service_streamer", "serve"]' in lines
    (user,) = [line.split()[1] for line in lines if line.startswith("USER")]
    assert user.isdecimal()
    assert int(user) > 0
    for file in ("kubernetes.yaml", "kserve.yaml"):
        limits = container(file)["securityContext"]
        assert limits["allowPrivilegeEscalation"] is False
        assert limits["capabilities"] == {"drop": ["ALL"]}
    (pod,) = [each["spec"]["template"]["spec"] for each in documents("kubernetes.yaml")[:1]]
    assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["runAsUser"]) == (
        True,
        int(user),
    )


def test_the_service_leads_to_the_ports_of_the_deployment():
    deployment, service = documents("kubernetes.yaml")
    template = deployment["spec"]["template"]
    labels = template["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels == service["spec"]["selector"]
    names = {port["name"] for port in container("kubernetes.yaml")["ports"]}
    assert {port["targetPort"] for port in service["spec"]["ports"]} == names - {"metrics"}
    mounts = {mount["name"] for mount in container("kubernetes.yaml")["volumeMounts"]}
    assert mounts == {volume["name"] for volume in template["spec"]["volumes"]}


def test_the_service_of_kserve_uses_the_runtime():
    runtime, service = documents("kserve.yaml")
    assert container("kserve.yaml")["name"] == "kserve-container"  # KServe looks for this name
    model = service["spec"]["predictor"]["model"]
    assert model["runtime"] == runtime["metadata"]["name"]
    formats = [each["name"] for each in runtime["spec"]["supportedModelFormats"]]
    assert model["modelFormat"]["name"] in formats
    assert model["protocolVersion"] in runtime["spec"]["protocolVersions"]
