"""The application: routes, the page, and how errors are put."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

from fastapi import Depends, FastAPI, Request
from fastapi.exception_handlers import request_validation_exception_handler
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, RedirectResponse, Response
from fastapi.staticfiles import StaticFiles

from dprotonet.data.upload import TooLarge
from dprotonet.errors import UserError
from dprotonet.version import __version__
from dprotonet.web import schemas
from dprotonet.web.access import COOKIE, Access
from dprotonet.web.guard import Guard
from dprotonet.web.review import router as review
from dprotonet.web.routes import REFUSALS, router, service_of
from dprotonet.web.samples import NoSuchImage
from dprotonet.web.saving import AlreadySaving
from dprotonet.web.service import NotFound, NotYet, Service
from dprotonet.web.worker import Busy

STATIC = Path(__file__).with_name("static")
_ENVELOPE = 100_000  # bytes of a form beside the file in it


def create_app(service: Service, door: Access | None = None) -> FastAPI:
    """The page and the API over a service, and the one beside it if there is one; all end together."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        for one in service.together:
            one.close()

    app = FastAPI(
        title="dprotonet",
        summary="Image classifiers that show their reasons",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,  # would load scripts from elsewhere
        redoc_url=None,
        openapi_url="/api",
    )
    app.state.service, app.state.door = service, door or Access()
    app.include_router(router)
    app.include_router(review)
    _add_pages(app)
    _add_errors(app)
    most = service.settings.limits.bytes + _ENVELOPE
    app.add_middleware(Guard, door=app.state.door, most_bytes=most)
    return app


def _add_pages(app: FastAPI) -> None:
    app.mount("/static", StaticFiles(directory=STATIC), name="static")

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-cache"})

    @app.get("/enter/{key}", include_in_schema=False)
    async def enter(key: str, request: Request) -> Response:
        """A one-time link: sets the cookie and goes to the page."""
        session = request.app.state.door.enter(key)
        if session is None:
            return JSONResponse({"detail": "this link is spent or was never given; ask for another"}, 403)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(COOKIE, session, httponly=True, samesite="strict", path="/")
        return answer

    @app.post("/api/links", responses=REFUSALS, status_code=201)
    async def link(request: Request) -> schemas.Link:
        """A path that lets one more browser in, once."""
        return schemas.Link(path=request.app.state.door.new_link())

    @app.get("/healthz", responses={404: REFUSALS[404]})
    async def health(service: Annotated[Service, Depends(service_of)]) -> schemas.Health:
        """Whether the server is up, and how much waits."""
        return schemas.Health(status="ok", waiting=service.waiting)


def _add_errors(app: FastAPI) -> None:
    statuses: dict[type[Exception], int] = {
        TooLarge: 413,
        AlreadySaving: 409,
        UserError: 400,
        NotFound: 404,
        NoSuchImage: 404,
        NotYet: 409,
        Busy: 503,
    }

    async def say(_request: Request, error: Exception) -> Response:
        status = next(code for kind, code in statuses.items() if isinstance(error, kind))
        return JSONResponse({"detail": str(error)}, status, {"Retry-After": "2"} if status == 503 else None)

    async def say_invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        try:
            return await request_validation_exception_handler(request, error)
        except ValueError:  # NaN, 1e400 or half a character, which Python reads and JSON cannot repeat
            return JSONResponse({"detail": "a value in it is none that JSON has, such as NaN"}, 400)

    for kind in statuses:
        app.add_exception_handler(kind, say)
    app.add_exception_handler(RequestValidationError, say_invalid)
