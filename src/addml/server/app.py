"""The endpoints, which static/openapi.json describes, and what is counted and logged of every request."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from importlib import resources
from threading import Event
from typing import IO, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import Scope

from addml import __version__
from addml.errors import AddmlError
from addml.server import NO_ROOM, Limits, RefusedError, error_json
from addml.server.access import Guard
from addml.server.job import REPORT, SCORED
from addml.server.jobs import ZIPPED, Job, Jobs, resident
from addml.server.models import JSON, LARGE, Models, score_rows
from addml.text import json_value

API = "/api/v1"
STATIC = resources.files("addml.server") / "static"
PAGES = {"/": "index.html", "/inspector.js": "inspector.js", "/inspector.css": "inspector.css"}
TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
FILES = {"report": (REPORT, "text/html"), "scored": (SCORED, "text/csv"), "model": (ZIPPED, "application/zip")}
# The report may run its own scripts, apart from the cookie and from all that it would open here.
REPORT_HEADERS = {"content-security-policy": "sandbox allow-scripts allow-downloads; frame-ancestors 'self'"}
LARGE_AT_ONCE = 2  # bodies over a megabyte
BUCKETS = ("0.002", "0.005", "0.01", "0.02", "0.05", "0.1", "0.2", "0.5", "1", "5", "+Inf")  # seconds
METHODS = ("GET", "HEAD", "POST", "DELETE", "PUT", "PATCH", "OPTIONS")


def create_app(models: Models, token: str, cookie: str, limits: Limits, access_log: str | None) -> Starlette:
    """The whole app over these models."""
    observer = Observer(access_log)
    api = Api(models, limits, observer)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await api.close()

    errors = (AddmlError, HTTPException, OSError, ClientDisconnect, Exception)
    app = Starlette(
        routes=[*api.routes(), *(Route(path, partial(_page, name)) for path, name in PAGES.items())],
        middleware=[Middleware(Guard, token=token, cookie=cookie, note=observer.note)],
        exception_handlers=dict.fromkeys(errors, _error),
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # the address of a redirect would be made of the Host header
    return app


async def _page(name: str, request: Request) -> Response:
    return Response((STATIC / name).read_bytes(), media_type=TYPES[name.partition(".")[2]])


class Api:
    """Models and jobs by REST."""

    def __init__(self, models: Models, limits: Limits, observer: Observer) -> None:
        self.models, self.limits, self.observer = models, limits, observer
        self.work = Jobs(models, limits)
        self._ending = Event()
        self._threads = ThreadPoolExecutor(LARGE_AT_ONCE + min(4, os.cpu_count() or 1), "addml score")
        self._used = Counter[str]()

    def routes(self) -> list[Route]:
        model, job = f"{API}/models/{{name}}", f"{API}/jobs/{{id}}"
        return [
            Route("/metrics", self.metrics),
            Route(f"{API}/health", self.health),
            Route(f"{API}/ready", self.ready),
            Route(f"{API}/openapi.json", self.openapi),
            Route(f"{API}/models", self.list_models),
            Route(model, self.model),
            Route(f"{model}/score", self.score, methods=["POST"]),
            Route(f"{API}/jobs", self.jobs, methods=["GET", "POST"]),
            Route(job, self.job, methods=["GET", "DELETE"]),
            Route(f"{job}/again", self.again, methods=["POST"]),
            *(Route(f"{job}/{name}", partial(self.file, name)) for name in FILES),
        ]

    async def close(self) -> None:
        self._ending.set()
        await asyncio.to_thread(self.work.close)
        self._threads.shutdown(wait=False, cancel_futures=True)

    @contextmanager
    def _slot(self, kind: str, most: int) -> Iterator[None]:
        """One of a few places; 503 where all are taken, at once: whoever waits would only make others wait."""
        if self._used[kind] >= most:
            raise RefusedError(f"the server is busy: {most} {kind} at once; try again", 503)
        self._used[kind] += 1
        try:
            yield
        finally:
            self._used[kind] -= 1

    # Answers ------------------------------------------------------------------------------------------------

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok", "addml": __version__})

    async def ready(self, request: Request) -> Response:
        waiting = self.work.waiting
        is_ready = not self._ending.is_set() and waiting < self.limits.queue
        answer = {"ready": is_ready, "models": len(self.models), "waiting": waiting}
        return JSONResponse(answer, 200 if is_ready else 503)

    async def openapi(self, request: Request) -> Response:
        document = json.loads((STATIC / "openapi.json").read_bytes())
        document["info"]["version"] = __version__
        return JSONResponse(document | {"servers": [{"url": request.scope["root_path"] or "/"}]})

    async def metrics(self, request: Request) -> Response:
        present = {
            "addml_models": len(self.models),
            "addml_jobs_waiting": self.work.waiting,
            "addml_scoring": self._used["requests to score"],
            "process_resident_memory_bytes": resident(os.getpid()),
        }
        return Response(self.observer.text(present), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def list_models(self, request: Request) -> Response:
        models = await asyncio.to_thread(lambda: [self.models.fresh(name) for name in list(self.models)])
        return _paged(request, "models", [model.short() for model in models])

    async def model(self, request: Request) -> Response:
        model = await asyncio.to_thread(self.models.fresh, request.path_params["name"])
        return JSONResponse(json_value(model.whole()))

    async def score(self, request: Request) -> Response:
        name = self.models[request.path_params["name"]].name
        kind = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
        is_large = int(request.headers.get("content-length", LARGE + 1)) > LARGE
        most = min(self.limits.rows, self.limits.upload)
        with ExitStack() as held:
            if is_large:  # bytes take many times their size in memory
                held.enter_context(self._slot("large requests", LARGE_AT_ONCE))
            body = b"".join([piece async for piece in _pieces(request, most, "send fewer rows at a time")])
            if not is_large:
                held.enter_context(self._slot("requests to score", self.limits.scoring))

            def scored() -> bytes:
                return score_rows(self.models.fresh(name), body, kind, self._ending.is_set)

            answer = await asyncio.get_running_loop().run_in_executor(self._threads, scored)
        return Response(answer, media_type=JSON)

    async def jobs(self, request: Request) -> Response:
        if request.method != "POST":
            return _paged(request, "jobs", [job.short() for job in self.work])
        asked = request.query_params
        options = [(name, value) for name, value in asked.multi_items() if name not in ("name", "model")]
        job = self.work.new(asked.get("name", ""), asked.get("model") or None, options)
        try:
            with job.upload.open("wb") as file:
                async for piece in _pieces(request, self.limits.upload, "allow more by --limit upload=SIZE"):
                    file.write(piece)
                if not file.tell():
                    raise RefusedError("the request is empty; send the bytes of a file as its body")
        except BaseException:  # a client that goes away too
            with suppress(RefusedError):  # removed already, as the server ends
                self.work.remove(job.id)
            raise
        self.work.start(job)
        return _started(request, job)

    async def again(self, request: Request) -> Response:
        asked = request.query_params.multi_items()
        return _started(request, await asyncio.to_thread(self.work.again, request.path_params["id"], asked))

    async def job(self, request: Request) -> Response:
        if request.method == "DELETE":
            await asyncio.to_thread(self.work.remove, request.path_params["id"])
            return Response(status_code=204)
        return JSONResponse(json_value(self.work[request.path_params["id"]].whole(request.scope["root_path"])))

    async def file(self, name: str, request: Request) -> Response:
        job, (file, kind) = self.work[request.path_params["id"]], FILES[name]
        if job.state != "done":
            raise RefusedError(f"the job is {job.state}: there is nothing to see", 409)
        if not (job.folder / file).exists():
            raise RefusedError(f"{job.file} was scored by {job.model}: nothing was learned from it", 404)
        headers = REPORT_HEADERS if name == "report" else {"content-disposition": "attachment"}
        return FileResponse(job.folder / file, media_type=kind, headers=headers)


async def _pieces(request: Request, most: int, remedy: str) -> AsyncIterator[bytes]:
    """The body piece by piece, unless it is or says that it is too large."""
    size, too_large = 0, RefusedError(f"more than {most / 1e6:,.0f} MB; {remedy}", 413)
    if int(request.headers.get("content-length", "0")) > most:
        raise too_large
    async for piece in request.stream():
        size += len(piece)
        if size > most:
            raise too_large
        yield piece


def _paged(request: Request, name: str, items: Sequence[dict[str, Any]]) -> Response:
    """Some items of a list, and where the rest begins."""
    asked = {"offset": "0", "limit": "100"} | dict(request.query_params)
    for word, least, most in (("offset", 0, 10**9), ("limit", 1, 1000)):
        if not re.fullmatch("[0-9]{1,9}", asked[word]) or not least <= int(asked[word]) <= most:
            raise RefusedError(f"{word}={asked[word]!r}: give a whole number of {least} to {most}")
    start = int(asked["offset"])
    end = start + int(asked["limit"])
    following = end if end < len(items) else None
    return JSONResponse(json_value({name: items[start:end], "total": len(items), "next": following}))


def _started(request: Request, job: Job) -> Response:
    root = request.scope["root_path"]
    return JSONResponse(json_value(job.whole(root)), 202, {"location": f"{root}{API}/jobs/{job.id}"})


async def _error(request: Request, error: Exception) -> Response:
    """What the client can correct or wait for; any other failure is logged, and its details stay here."""
    headers = dict(getattr(error, "headers", None) or {})
    if isinstance(error, ClientDisconnect):
        status, message = 400, "the client went away"
    elif isinstance(error, HTTPException):
        status, message = error.status_code, f"{request.method} {request.scope['path']}: {error.detail}"
    elif isinstance(error, AddmlError):
        status, message = getattr(error, "status", 422), str(error)
    elif isinstance(error, OSError) and error.errno == errno.ENOSPC:
        status, message = 507, NO_ROOM
    else:
        logging.getLogger("addml").error("%s %s", request.method, request.scope["path"], exc_info=error)
        status, message = 500, f"the server failed ({type(error).__name__}); its terminal says more"
    if status in (429, 503):
        headers["retry-after"] = "1"
    return Response(error_json(status, message), status, headers, JSON)


# What is counted and logged ---------------------------------------------------------------------------------


class Observer:
    """Counts requests and their seconds for Prometheus, and writes a line for each where a log is wanted."""

    def __init__(self, access_log: str | None) -> None:
        """The log is a file, or `-` for standard error."""
        self.requests, self.seconds = Counter[str](), defaultdict[str, float](int)  # by names with labels
        self.log: IO[str] | None = sys.stderr if access_log == "-" else None
        if access_log and self.log is None:
            self.log = open(access_log, "a", encoding="utf-8")  # noqa: SIM115

    def note(self, scope: Scope, status: int, seconds: float) -> None:
        path = getattr(scope.get("route"), "path", "other")  # no names of clients: their number has no bound
        method = scope["method"] if scope["method"] in METHODS else "other"
        self.requests[f'addml_requests_total{{method="{method}",path="{path}",status="{status}"}}'] += 1
        for edge in BUCKETS:
            self.seconds[f'addml_request_seconds_bucket{{path="{path}",le="{edge}"}}'] += seconds <= float(edge)
        self.seconds[f'addml_request_seconds_sum{{path="{path}"}}'] += seconds
        self.seconds[f'addml_request_seconds_count{{path="{path}"}}'] += 1
        if self.log is not None:
            client = (scope.get("client") or ("-",))[0]
            when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            asked = scope["path"].encode("unicode_escape").decode()  # without the query, which may hold the token
            print(f"{when} {client} {method} {asked} {status} {seconds * 1000:.1f}ms", file=self.log, flush=True)

    def text(self, present: Mapping[str, float]) -> str:
        """All of it, and values of the present, in Prometheus' format."""
        lines = [f"# TYPE {name} gauge\n{name} {value}" for name, value in present.items()]
        lines += ["# TYPE addml_requests_total counter", *(f"{one} {count}" for one, count in self.requests.items())]
        lines += ["# TYPE addml_request_seconds histogram", *(f"{one} {sum}" for one, sum in self.seconds.items())]
        return "\n".join(lines) + "\n"
