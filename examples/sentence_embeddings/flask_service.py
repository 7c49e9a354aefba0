"""The service with Flask: /naive calls the model directly, /stream uses a streamer.

MODEL=encoder.pt2 gunicorn -c gunicorn_conf.py 'flask_service:create_app()'
curl -d 's=Hello world.' http://127.0.0.1:5005/stream
"""

from __future__ import annotations

from flask import Flask, Response, jsonify, request
from service import BadRequest, EmbeddingService


def create_app(service: EmbeddingService | None = None) -> Flask:
    app = Flask(__name__)
    service = service or EmbeddingService.from_environment()

    @app.post("/naive")
    def naive() -> Response:
        return jsonify(service.embed_alone(request.form.getlist("s")))

    @app.post("/stream")
    def stream() -> Response:
        return jsonify(service.embed(request.form.getlist("s")))

    @app.get("/explain")
    def explain() -> Response:
        return Response(service.streamer.explain(), mimetype="text/plain")

    @app.errorhandler(BadRequest)
    def bad_request(error: BadRequest) -> tuple[Response, int]:
        return jsonify(error=str(error)), 400

    return app
