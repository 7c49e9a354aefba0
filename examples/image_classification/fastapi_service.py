"""The service with FastAPI: waiting for a batch does not block other requests.

MODEL=network.pt2 uvicorn --port 5005 --factory fastapi_service:create_app
"""

from typing import Annotated

from fastapi import FastAPI, File, Request
from fastapi.responses import JSONResponse, PlainTextResponse
from service import Answer, BadRequest, ImageService

Images = Annotated[list[bytes], File(default_factory=list)]


def create_app(service: ImageService | None = None) -> FastAPI:
    app = FastAPI()
    service = service or ImageService.from_environment()

    @app.post("/naive")
    def naive(image: Images) -> list[Answer]:
        return service.classify_alone(image)

    @app.post("/stream")
    async def stream(image: Images) -> list[Answer]:
        return await service.classify_async(image)

    @app.get("/explain", response_class=PlainTextResponse)
    async def explain() -> str:
        return service.streamer.explain()

    @app.exception_handler(BadRequest)
    async def bad_request(request: Request, error: BadRequest) -> JSONResponse:
        return JSONResponse({"error": str(error)}, status_code=400)

    return app
