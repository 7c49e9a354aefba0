"""The service with FastAPI: waiting for a batch does not block other requests.

MODEL=encoder.pt2 uvicorn --port 5005 --factory fastapi_service:create_app
"""

from typing import Annotated

from fastapi import FastAPI, Form, Request
from fastapi.responses import JSONResponse, PlainTextResponse
from service import BadRequest, EmbeddingService

Sentences = Annotated[list[str], Form(default_factory=list)]


def create_app(service: EmbeddingService | None = None) -> FastAPI:
    app = FastAPI()
    service = service or EmbeddingService.from_environment()

    @app.post("/naive")
    def naive(s: Sentences) -> list[list[float]]:
        return service.embed_alone(s)

    @app.post("/stream")
    async def stream(s: Sentences) -> list[list[float]]:
        return await service.embed_async(s)

    @app.get("/explain", response_class=PlainTextResponse)
    async def explain() -> str:
        return service.streamer.explain()

    @app.exception_handler(BadRequest)
    async def bad_request(request: Request, error: BadRequest) -> JSONResponse:
        return JSONResponse({"error": str(error)}, status_code=400)

    return app
