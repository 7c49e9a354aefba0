"""What the files of the examples say of each other: READMEs, Dockerfiles and manifests."""

import re
import shlex
from pathlib import Path

import pytest

from service_streamer._commands.main import _parser

EXAMPLES = Path(__file__).parents[3] / "examples"
FOLDERS = sorted(path.parent for path in EXAMPLES.glob("*/README.md"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_readme_lists_the_files_and_its_commands_are_understood(folder):
    text = (folder / "README.md").read_text().replace("\\\n", "")
    cells = re.findall(r"^\| (`[^|]+`) \|", text, re.MULTILINE)
    names = {name for cell in cells for name in re.findall("`([^`]+)`", cell)}
    listed = {name for name in names if re.search(r"[./]|^Dockerfile$", name)}
    assert [name for name in listed if not (folder / name).exists()] == []
    kinds = ("*.py", "*.yaml", "*.yml", "*.json", "Dockerfile")
    files = {path.name for kind in kinds for path in folder.glob(kind)}
    assert files <= listed or len(files) == 1
    for command in re.findall(r"^(?: *-- )?python -m service_streamer (.+?)(?: &)?$", text, re.M):
        _parser().parse_args(shlex.split(command))


@pytest.mark.parametrize("name", ["model_server", "ray", "redis"])
def test_an_image_has_what_its_dockerfile_copies(name):
    text = (EXAMPLES / name / "Dockerfile").read_text()
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
    assert copied
    for path in " ".join(copied).split():
        assert (EXAMPLES.parent / path).exists(), path


def pod(template):
    metadata = {"name": "x", **template.get("metadata", {})}
    return {"apiVersion": "v1", "kind": "Pod", **template, "metadata": metadata}


def known(document):
    """What Kubernetes' own schemas have of a document. Those of operators are in no package."""
    if document["kind"] == "RayJob":
        cluster = document["spec"]["rayClusterSpec"]
        groups = (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])
        return [pod(group["template"]) for group in groups]
    if document["kind"] == "ServingRuntime":
        return [pod({"spec": {"containers": document["spec"]["containers"]}})]
    return [] if document["kind"] == "InferenceService" else [document]


@pytest.mark.parametrize(
    "file",
    [
        "model_server/kserve.yaml",
        "model_server/kubernetes.yaml",
        "ray/kuberay.yaml",
        "redis/hpa.yaml",
        "redis/kubernetes.yaml",
    ],
)
def test_a_manifest_follows_its_schema(file):
    yaml = pytest.importorskip("yaml")
    validate = pytest.importorskip("kubernetes_validate")
    for document in yaml.safe_load_all((EXAMPLES / file).read_text()):
        for each in known(document):
            validate.validate(each, "1.31", strict=True)
