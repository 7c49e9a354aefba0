"""The examples with a broker: each runs, and the manifests say what would work."""

import functools
import json
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import web_services
from ports import reserve_port
from redis_server import NEEDS_SERVER, RedisServer
from waits import eventually
from web_services import LONG, TUTORIAL, answers, ask

pytest.importorskip("redis")
pytest.importorskip("gevent")
yaml = pytest.importorskip("yaml")

pytestmark = NEEDS_SERVER

FOLDER = Path(__file__).parents[3] / "examples" / "redis"
running = functools.partial(web_services.running, FOLDER)
SECRET = "right secret"


@pytest.fixture
def server():
    server = RedisServer(requirepass="password")
    yield server
    server.close()


def check_tutorial(port):
    eventually(lambda: answers(port), LONG)
    assert ask(port, s=list(TUTORIAL)).json() == list(TUTORIAL.values())
    refused = ask(port, s="no gap here")
    assert (refused.status_code, "no [MASK]" in refused.json()["error"]) == (400, True)
    assert "batch" in ask(port, "/explain").text
    eventually(lambda: ask(port, "/streamer/ready").status_code == 200)


def test_gunicorn_with_greenlets_and_workers_of_a_script(server, port, tmp_path):
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    settings = {"REDIS_BROKER": server.url, "SECRET_FILE": str(tmp_path / "secret")}
    with (
        running("worker.py", CUDA_DEVICES="0,1", **settings) as worker,
        running(
            *("-m", "gunicorn", "-c", "gunicorn_conf.py", "app:app"),
            BIND=f"127.0.0.1:{port}",
            **settings,
        ) as web,
    ):
        check_tutorial(port)
        worker.terminate()  # and without a worker, the web processes are not ready
        eventually(lambda: ask(port, "/streamer/ready").status_code == 503)
        assert ask(port, "/streamer/live").status_code == 200
    assert (web.returncode, worker.returncode) == (0, 0)


def test_two_models_with_two_prefixes(server, port):
    settings = {"REDIS_BROKER": server.url}
    command = ["-m", "service_streamer", "redis-worker"]
    with (
        running(*command, "models:ManagedBertModel", "--prefix", "text-infilling", **settings),
        running(
            *command, "models:Sentiment", "--prefix", "sentiment", "--workers", "2", **settings
        ),
        running(
            *("-m", "gunicorn", "-c", "gunicorn_conf.py", "two_models_app:app"),
            BIND=f"127.0.0.1:{port}",
            **settings,
        ),
    ):
        eventually(lambda: answers(port, "/both"), LONG)
        sentence = "Happy birthday to [MASK]."
        assert ask(port, s=sentence).json() == ["you"]
        assert ask(port, "/sentiment", s=["a sad song", "x"]).json() == [-1.0, 0.0]
        assert ask(port, "/both", s=sentence).json() == {"words": ["you"], "scores": [1.0]}


# ------------------------------------------------------------------- manifests


def replaced(text, **variables):
    """What compose and Kubernetes do with ${NAME:?} and $(NAME)."""
    return re.sub(r"\$[{(](\w+)(:\?)?[)}]", lambda match: variables[match[1]], text)


def run_deployment(stack, server, secret, ports, commands):
    """Run the commands of a deployment here: {"worker": (command, environment), "web": …}.

    `ports` are those here, by those in the deployment.
    """
    for command, environment in commands.values():
        words = [
            re.sub(r"/run/secrets/\S+", str(secret), replaced(word, REDIS_PASSWORD="password"))
            for word in command
        ]
        words = [word.replace("0.0.0.0:8080", f"127.0.0.1:{ports[8080]}") for word in words]
        variables = {
            name: re.sub(
                r"/run/secrets/\S+",
                str(secret),
                re.sub(
                    r"@[\w-]+:6379",
                    f"@{server.address}",
                    replaced(value, REDIS_PASSWORD="password"),
                ),
            )
            for name, value in environment.items()
        }
        if "BIND" in variables:
            assert variables["BIND"] == "0.0.0.0:5005"
            variables["BIND"] = f"127.0.0.1:{ports[5005]}"
        assert words[0] in ("python", "gunicorn")
        words = words[1:] if words[0] == "python" else ["-m", *words]
        stack.enter_context(running(*words, **variables))


def check_deployment(server, port, tmp_path, commands, check):
    """Run the commands, and call `check` with the ports that they have here."""
    (tmp_path / "secret").write_text(SECRET)
    with ExitStack() as stack:
        keeper = stack.enter_context(reserve_port())
        ports = {5005: port, 8080: keeper.getsockname()[1]}
        run_deployment(stack, server, tmp_path / "secret", ports, commands)
        check_tutorial(port)
        check(ports)


def compose():
    return yaml.safe_load((FOLDER / "docker-compose.yml").read_text())


def test_what_docker_compose_starts_works(server, port, tmp_path):
    services = compose()["services"]
    commands = {
        name: (services[name]["command"], services[name]["environment"])
        for name in ("worker", "web")
    }

    def check(ports):
        for name in commands:
            (_, python, *code) = services[name]["healthcheck"]["test"]
            assert python == "python"
            (there,) = re.findall(r"localhost:(\d+)", code[1])
            code[1] = code[1].replace(there, str(ports[int(there)]))
            eventually(lambda code=code: subprocess.run([sys.executable, *code]).returncode == 0)

    check_deployment(server, port, tmp_path, commands, check)


def test_the_parts_of_the_compose_file_fit_together():
    document = compose()
    for service in document["services"].values():
        assert set(service.get("secrets", ())) <= set(document["secrets"])
        assert set(service.get("depends_on", ())) <= set(document["services"])
        for volume in service.get("volumes", ()):
            assert volume.split(":")[0] in document["volumes"]
    build = document["services"]["worker"]["build"]
    assert (FOLDER / build["context"] / build["dockerfile"]).samefile(FOLDER / "Dockerfile")


def kubernetes():
    return list(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()))


def kubernetes_deployments():
    return [document for document in kubernetes() if document["kind"] == "Deployment"]


def container_of(document):
    (container,) = document["spec"]["template"]["spec"]["containers"]
    return container


def test_what_kubernetes_starts_works(server, port, tmp_path):
    commands = {}
    for document in kubernetes_deployments():
        name = document["metadata"]["name"].removeprefix("text-infilling-")
        container = container_of(document)
        environment = {each["name"]: each["value"] for each in container["env"] if "value" in each}
        commands[name] = (container["command"] + container.get("args", []), environment)
    assert set(commands) == {"worker", "web"}

    def check(ports):
        for container in map(container_of, kubernetes_deployments()):
            for probe in ("livenessProbe", "readinessProbe"):
                get = container[probe]["httpGet"]
                assert {"containerPort": get["port"]} in container["ports"]
                here = ports[get["port"]]
                eventually(lambda: ask(here, get["path"]).status_code == 200)  # noqa: B023

    check_deployment(server, port, tmp_path, commands, check)


def test_the_parts_of_the_kubernetes_manifest_fit_together():
    documents = kubernetes()
    by_kind = {}
    for document in documents:
        by_kind.setdefault(document["kind"], {})[document["metadata"]["name"]] = document
    workloads = {**by_kind["Deployment"], **by_kind["StatefulSet"]}
    for name, workload in workloads.items():
        spec = workload["spec"]
        labels = spec["template"]["metadata"]["labels"]
        assert spec["selector"]["matchLabels"] == labels == {"app": name}
        container = container_of(workload)
        mounts = {mount["name"] for mount in container.get("volumeMounts", ())}
        volumes = {volume["name"] for volume in spec["template"]["spec"].get("volumes", ())}
        claims = {claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", ())}
        assert mounts == volumes | claims
    for name, service in by_kind["Service"].items():
        (port,) = service["spec"]["ports"]
        (open_port,) = container_of(workloads[name])["ports"]
        assert service["spec"]["selector"] == {"app": name}
        assert port.get("targetPort", port["port"]) == open_port["containerPort"]
    brokers = re.findall(r"@([\w-]+):6379", json.dumps(documents))
    assert set(brokers) <= set(by_kind["Service"])
