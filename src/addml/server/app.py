"""The addresses and what answers there, and a server that stops when told to, whatever its clients do."""

from __future__ import annotations

import errno
import json
import logging
import shutil
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from importlib import resources
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from addml import __version__
from addml.server.access import Access, DrainBody, Guard
from addml.server.job import REPORT, SCORED
from addml.server.jobs import ZIPPED, Jobs
from addml.server.models import Models, RefusedError, score_rows
from addml.text import json_value

PATIENCE = 1  # seconds for answers that are under way
GONE = [number for number in signal.Signals if number.name == "SIGHUP"]  # which Windows does not have


class Server(uvicorn.Server):
    """Ends at an interrupt, at a polite kill and when the terminal goes, and leaves nothing behind."""

    def __init__(self, app: ASGIApp, when_ready: Callable[[], None]) -> None:
        """The app, and what is done when it answers and heeds signals."""
        super().__init__(
            uvicorn.Config(
                app,
                log_level="critical",  # what fails is said by the app; what is cut off at the end is no failure
                access_log=False,
                server_header=False,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=PATIENCE,
            )
        )
        self._when_ready = when_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        self._when_ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Those that uvicorn knows, and that the terminal goes, unless the server is to outlive it (nohup)."""
        with super().capture_signals():
            heeded = [number for number in GONE if callable(signal.getsignal(number))]
            before = [signal.signal(number, self.handle_exit) for number in heeded]
            try:
                yield
            finally:
                for number, handler in zip(heeded, before, strict=True):
                    signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End; a second signal changes nothing, since jobs and files would be left behind."""
        if not self.should_exit:
            super().handle_exit(sig, frame)


# The addresses, and what answers there.


JSON_LIMIT = 64 * 10**6  # bytes of rows at once, if not less is allowed
KINDS = {"index.html": "text/html", "inspector.js": "text/javascript", "inspector.css": "text/css"}
# The report may run its own scripts, apart from the cookie and from all that it would open here.
REPORT_POLICY = "sandbox allow-scripts allow-downloads; frame-ancestors 'self'"
RESERVED = ("name", "model")  # of the query of a job; all else are options

Answer = Callable[[Request], Awaitable[Response]]


def create_app(models: Models, access: Access, limit: int) -> Starlette:
    """The whole app over these models; files of at most so many bytes."""
    work, ending = Jobs(models), Event()

    @asynccontextmanager
    async def lifespan(app: Starlette) -> Any:
        try:
            yield
        finally:
            ending.set()
            await run_in_threadpool(work.close)

    return Starlette(
        routes=[*_pages(), *_models(models, limit, ending), *_jobs(work, limit)],
        middleware=[Middleware(DrainBody), Middleware(Guard, access=access)],
        exception_handlers={
            RefusedError: _refused,
            HTTPException: _not_found,
            ClientDisconnect: _gone,
            OSError: _no_room,
            Exception: _failed,
        },
        lifespan=lifespan,
    )


def _pages() -> Sequence[Route]:
    async def health(request: Request) -> Response:
        return JSONResponse({"status": "ok", "addml": __version__})

    def static(name: str) -> Answer:
        content = (resources.files("addml.server") / "static" / name).read_bytes()

        async def answer(request: Request) -> Response:
            return Response(content, media_type=f"{KINDS[name]}; charset=utf-8")

        return answer

    files = [Route(f"/{name}", static(name)) for name in KINDS if name != "index.html"]
    return [Route("/", static("index.html")), *files, Route("/api/health", health)]


def _models(models: Models, limit: int, ending: Event) -> Sequence[Route]:
    async def every(request: Request) -> Response:
        return JSONResponse({"models": [model.short() for model in models]})

    async def one(request: Request) -> Response:
        return JSONResponse(json_value(models[request.path_params["name"]].whole()))

    async def score(request: Request) -> Response:
        model = models[request.path_params["name"]]
        if model.fitted is None:
            raise model.refusal()
        asked = await read_json(request, min(limit, JSON_LIMIT))
        return JSONResponse(await run_in_threadpool(score_rows, model.fitted, asked, ending.is_set))

    return [
        Route("/api/models", every),
        Route("/api/models/{name}", one),
        Route("/api/models/{name}/score", score, methods=["POST"]),
    ]


def _jobs(work: Jobs, limit: int) -> Sequence[Route]:
    async def every(request: Request) -> Response:
        return JSONResponse({"jobs": [job.short() for job in work]})

    async def new(request: Request) -> Response:
        asked = request.query_params
        own = [(name, value) for name, value in asked.multi_items() if name not in RESERVED]
        job = work.new(asked.get("name", ""), asked.get("model") or None, own)
        try:
            await save_body(request, job.upload, limit)
        except BaseException:  # a client that goes away too
            shutil.rmtree(job.folder, ignore_errors=True)
            raise
        work.start(job)
        return JSONResponse(job.whole(), 202, {"location": f"/api/jobs/{job.id}"})

    async def again(request: Request) -> Response:
        asked = request.query_params.multi_items()
        job = await run_in_threadpool(work.again, request.path_params["id"], asked)
        return JSONResponse(job.whole(), 202, {"location": f"/api/jobs/{job.id}"})

    async def one(request: Request) -> Response:
        return JSONResponse(json_value(work[request.path_params["id"]].whole()))

    async def remove(request: Request) -> Response:
        await run_in_threadpool(work.remove, request.path_params["id"])
        return Response(status_code=204)

    def result(file: str, kind: str, headers: dict[str, str]) -> Answer:
        async def answer(request: Request) -> Response:
            job = work[request.path_params["id"]]
            if job.state != "done":
                raise RefusedError(f"the job is {job.state}: there is nothing to see", 409)
            if not (job.folder / file).exists():
                raise RefusedError(f"{job.file} was scored by {job.model}: nothing was learned from it", 404)
            return FileResponse(job.folder / file, media_type=kind, headers=headers)

        return answer

    report = result(REPORT, "text/html; charset=utf-8", {"content-security-policy": REPORT_POLICY})
    scored = result(SCORED, "text/csv; charset=utf-8", {"content-disposition": "attachment"})
    model = result(ZIPPED, "application/zip", {"content-disposition": "attachment"})
    return [
        Route("/api/jobs", every),
        Route("/api/jobs", new, methods=["POST"]),
        Route("/api/jobs/{id}", one),
        Route("/api/jobs/{id}", remove, methods=["DELETE"]),
        Route("/api/jobs/{id}/again", again, methods=["POST"]),
        Route("/api/jobs/{id}/report", report),
        Route("/api/jobs/{id}/scored", scored),
        Route("/api/jobs/{id}/model", model),
    ]


# Bodies of requests ----------------------------------------------------------------------------------------


async def save_body(request: Request, path: Path, most: int) -> int:
    """Write the body to a file piece by piece; its size in bytes."""
    size = 0
    with path.open("wb") as file:
        async for piece in _pieces(request, most, "allow more by --limit"):
            file.write(piece)
            size += len(piece)
    if not size:
        raise RefusedError("the request is empty; send the bytes of a file as its body")
    return size


async def read_json(request: Request, most: int) -> Any:
    """The body as JSON."""
    pieces = [piece async for piece in _pieces(request, most, "send fewer rows at a time")]
    try:
        return json.loads(b"".join(pieces))
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"the body is not JSON ({error}); send {{'rows': [...]}}".replace("'", '"')) from None


async def _pieces(request: Request, most: int, remedy: str) -> AsyncIterator[bytes]:
    """The body piece by piece, unless it is or says that it is too large."""
    size, said = 0, request.headers.get("content-length", "0")
    too_large = RefusedError(f"more than {most / 1e6:,.0f} MB; {remedy}", 413)
    if int(said) > most:
        raise too_large
    async for piece in request.stream():
        size += len(piece)
        if size > most:
            raise too_large
        yield piece


# Errors -----------------------------------------------------------------------------------------------------


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedError)
    return JSONResponse({"error": str(error)}, error.status)


async def _not_found(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": f"{request.method} {request.url.path}: {error.detail}"}, error.status_code)


async def _gone(request: Request, error: Exception) -> Response:
    """Nobody hears it; but it is no failure of the server."""
    return Response(status_code=400)


async def _no_room(request: Request, error: Exception) -> Response:
    if not isinstance(error, OSError) or error.errno != errno.ENOSPC:
        raise error
    return JSONResponse({"error": "the server has no room left on its disk; remove jobs, or send less"}, 507)


async def _failed(request: Request, error: Exception) -> Response:
    logging.getLogger("addml").error("%s %s", request.method, request.scope["path"], exc_info=error)
    return JSONResponse({"error": f"the server failed ({type(error).__name__}); its terminal says more"}, 500)
