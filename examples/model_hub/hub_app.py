"""The usual web application, with a hub in the place of a streamer: each model has its own route.

curl -d 's=Jack and [MASK] went up the hill' http://127.0.0.1:5005/infilling-goose
curl -F image=@shape.png http://127.0.0.1:5005/picture-shape
"""

import dataclasses
import os

from flask import Flask, Response, jsonify, request
from small_models import BadInput

from service_streamer.hub import ModelHub, UnknownModel

app = Flask(__name__)
app.config["MAX_CONTENT_LENGTH"] = 16 * 2**20
hub = ModelHub.watch(
    os.environ.get("MODELS", "models"), max_loaded=int(os.environ.get("MAX_LOADED", "8"))
)


@app.post("/<name>")
def predict(name: str) -> Response:
    outputs = hub[name].predict(inputs())
    return jsonify(outputs)


@app.get("/status")
def status() -> Response:
    return jsonify({name: dataclasses.asdict(model) for name, model in hub.status().items()})


def inputs() -> list[str] | list[bytes]:
    """Return the form's fields `s`, or its files `image`."""
    found = request.form.getlist("s") or [file.read() for file in request.files.getlist("image")]
    if not found:
        raise BadInput("the form has neither a field 's' nor a file 'image'")
    return found


@app.errorhandler(BadInput)
def bad_input(error: BadInput) -> tuple[Response, int]:
    return jsonify(error=str(error)), 400


@app.errorhandler(UnknownModel)
def unknown_model(error: UnknownModel) -> tuple[Response, int]:
    return jsonify(error=str(error)), 404
