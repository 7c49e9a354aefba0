"""The example of a Ray cluster: it runs as its manifest says, and the manifest is valid."""

import functools
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import web_services
from waits import eventually
from web_services import LONG

yaml = pytest.importorskip("yaml")
pytest.importorskip("ray")

pytestmark = pytest.mark.over_ray

FOLDER = Path(__file__).parents[3] / "examples" / "ray"
running = functools.partial(web_services.running, FOLDER)


def documents():
    """The RayJob and the Service."""
    return list(yaml.safe_load_all((FOLDER / "kuberay.yaml").read_text()))


def entrypoint(port):
    """What the RayJob starts, with the folder and the port that it has here."""
    command = documents()[0]["spec"]["entrypoint"]
    assert "--app-dir /home/ray/app --host 0.0.0.0 --port 8000" in command
    command = command.replace("/home/ray/app", str(FOLDER)).replace("0.0.0.0", "127.0.0.1")
    return ["-m", *shlex.split(command.replace("8000", str(port)))]


def ask(port, *texts):
    """The status and the answer of the application; None: it does not listen yet."""
    try:
        answer = httpx.post(f"http://127.0.0.1:{port}/sentiment", json=texts, timeout=LONG)
    except httpx.TransportError:
        return None
    return answer.status_code, answer.json()


def test_the_application_of_the_manifest_shares_its_replicas_with_a_job(ray_address, port):
    settings = yaml.safe_load(documents()[0]["spec"]["runtimeEnvYAML"])["env_vars"]
    with running(*entrypoint(port), **settings) as web:
        eventually(lambda: ask(port, "what a good day", "so sad") == (200, [1.0, -1.0]), LONG)
        eventually(lambda: httpx.get(f"http://127.0.0.1:{port}/streamer/ready").is_success)
        job = [sys.executable, "bulk.py", "1000"]
        done = subprocess.run(job, cwd=FOLDER, capture_output=True, text=True, timeout=LONG)
        assert (done.returncode, done.stdout) == (0, "500 of 1000 texts are glad\n"), done.stderr
    assert web.returncode == -signal.SIGTERM  # as uvicorn does after a graceful end


def pods():
    """The pods of the RayJob by the name of their group, as Kubernetes would have them."""
    cluster = documents()[0]["spec"]["rayClusterSpec"]
    groups = {"head": cluster["headGroupSpec"]}
    groups |= {group["groupName"]: group for group in cluster["workerGroupSpecs"]}
    return {name: group["template"] for name, group in groups.items()}


def test_each_replica_may_have_a_node():
    job = documents()[0]["spec"]
    (workers,) = job["rayClusterSpec"]["workerGroupSpecs"]
    assert workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]
    most = yaml.safe_load(job["runtimeEnvYAML"])["env_vars"]["MOST_REPLICAS"]
    assert workers["maxReplicas"] == int(most)


def test_the_service_leads_to_the_application():
    _, service = documents()
    head = pods()["head"]
    (port,) = service["spec"]["ports"]
    ports = {each["name"]: each["containerPort"] for each in head["spec"]["containers"][0]["ports"]}
    assert service["spec"]["selector"] == head["metadata"]["labels"]
    assert ports[port["targetPort"]] == 8000


def test_all_nodes_have_one_version_of_ray():
    text = (FOLDER / "Dockerfile").read_text()
    versions = re.findall(r"^FROM rayproject/ray:([\d.]+)-", text, re.MULTILINE)
    assert set(versions) == {documents()[0]["spec"]["rayClusterSpec"]["rayVersion"]}
    images = {pod["spec"]["containers"][0]["image"] for pod in pods().values()}
    assert images == {re.search(r"docker build -t (\S+)", text)[1]}
