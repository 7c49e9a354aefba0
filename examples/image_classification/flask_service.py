"""The service with Flask: /naive calls the network directly, /stream uses a streamer.

MODEL=network.pt2 gunicorn -c gunicorn_conf.py 'flask_service:create_app()'
curl -F image=@shape.png http://127.0.0.1:5005/stream
"""

from __future__ import annotations

from flask import Flask, Response, jsonify, request
from service import BadRequest, ImageService


def create_app(service: ImageService | None = None) -> Flask:
    app = Flask(__name__)
    app.config["MAX_CONTENT_LENGTH"] = 16 * 2**20
    service = service or ImageService.from_environment()

    def files() -> list[bytes]:
        return [file.read() for file in request.files.getlist("image")]

    @app.post("/naive")
    def naive() -> Response:
        return jsonify(service.classify_alone(files()))

    @app.post("/stream")
    def stream() -> Response:
        return jsonify(service.classify(files()))

    @app.get("/explain")
    def explain() -> Response:
        return Response(service.streamer.explain(), mimetype="text/plain")

    @app.errorhandler(BadRequest)
    def bad_request(error: BadRequest) -> tuple[Response, int]:
        return jsonify(error=str(error)), 400

    return app
