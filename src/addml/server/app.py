"""The endpoints (described in static/openapi.json), metrics and the access log."""

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
from addml.server import DISK_FULL, Limits, RefusedError, error_json
from addml.server.access import Guard
from addml.server.job import REPORT, SCORED
from addml.server.jobs import MODEL_ZIP, Job, Jobs, resident
from addml.server.models import JSON, LARGE, Models, score_rows
from addml.text import json_value

API = "/api/v1"
STATIC = resources.files("addml.server") / "static"
PAGES = {"index.html": "text/html", "inspector.js": "text/javascript", "inspector.css": "text/css"}
FILES = {"report": (REPORT, "text/html"), "scored": (SCORED, "text/csv"), "model": (MODEL_ZIP, "application/zip")}
# The report may run its own scripts, but without access to the cookie or to other pages of this server.
REPORT_HEADERS = {"content-security-policy": "sandbox allow-scripts allow-downloads; frame-ancestors 'self'"}
MAX_LARGE = 2  # requests with bodies over 1 MB at the same time
BUCKETS = ("0.002", "0.005", "0.01", "0.02", "0.05", "0.1", "0.2", "0.5", "1", "5", "+Inf")  # seconds
METHODS = ("GET", "HEAD", "POST", "DELETE", "PUT", "PATCH", "OPTIONS")


def create_app(models: Models, token: str, cookie: str, limits: Limits, access_log: str | None) -> Starlette:
    observer = Observer(access_log)
    api = Api(models, limits, observer)

    pages = [Route(f"/{name}".removesuffix("index.html"), partial(_page, name)) for name in PAGES]
    errors = (AddmlError, HTTPException, OSError, ClientDisconnect, Exception)
    app = Starlette(
        routes=[*api.routes(), *pages],
        middleware=[Middleware(Guard, token=token, cookie=cookie, record=observer.record)],
        exception_handlers=dict.fromkeys(errors, _error),
        lifespan=api.lifespan,
    )
    app.router.redirect_slashes = False  # the redirect would contain the client's Host header
    return app


async def _page(name: str, request: Request) -> Response:
    return Response((STATIC / name).read_bytes(), media_type=PAGES[name])


class Api:
    def __init__(self, models: Models, limits: Limits, observer: Observer) -> None:
        self.models, self.limits, self.observer = models, limits, observer
        self.queue = Jobs(models, limits)
        self._stopping = Event()
        self._threads = ThreadPoolExecutor(MAX_LARGE + min(4, os.cpu_count() or 1), "addml score")
        self._slots = Counter[str]()  # occupied, by kind

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

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            self._stopping.set()
            await asyncio.to_thread(self.queue.close)
            self._threads.shutdown(wait=False, cancel_futures=True)

    @contextmanager
    def _slot(self, kind: str, limit: int) -> Iterator[None]:
        """Occupy one of `limit` slots, or refuse with 503 at once: a queue would only delay everyone."""
        if self._slots[kind] >= limit:
            raise RefusedError(f"the server is busy: it handles {limit} {kind} at a time; try again", 503)
        self._slots[kind] += 1
        try:
            yield
        finally:
            self._slots[kind] -= 1

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok", "addml": __version__})

    async def ready(self, request: Request) -> Response:
        waiting = self.queue.waiting
        is_ready = not self._stopping.is_set() and waiting < self.limits.queue
        body = {"ready": is_ready, "models": len(self.models), "waiting": waiting}
        return JSONResponse(body, 200 if is_ready else 503)

    async def openapi(self, request: Request) -> Response:
        document = json.loads((STATIC / "openapi.json").read_bytes())
        document["info"]["version"] = __version__
        return JSONResponse(document | {"servers": [{"url": request.scope["root_path"] or "/"}]})

    async def metrics(self, request: Request) -> Response:
        gauges = {
            "addml_models": len(self.models),
            "addml_jobs_waiting": self.queue.waiting,
            "addml_scoring": self._slots["requests to score"],
            "process_resident_memory_bytes": resident(os.getpid()),
        }
        return Response(self.observer.text(gauges), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def list_models(self, request: Request) -> Response:
        models = await asyncio.to_thread(lambda: [self.models.current(name) for name in list(self.models)])
        return _page_of(request, "models", [model.short() for model in models])

    async def model(self, request: Request) -> Response:
        model = await asyncio.to_thread(self.models.current, request.path_params["name"])
        return JSONResponse(json_value(model.full()))

    async def score(self, request: Request) -> Response:
        name = self.models[request.path_params["name"]].name
        content_type = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
        is_large = int(request.headers.get("content-length", LARGE + 1)) > LARGE
        limit = min(self.limits.rows, self.limits.upload)
        with ExitStack() as slots:
            if is_large:  # parsed rows need many times the memory of the body
                slots.enter_context(self._slot("large requests", MAX_LARGE))
            body = b"".join([chunk async for chunk in _chunks(request, limit, "send fewer rows per request")])
            if not is_large:
                slots.enter_context(self._slot("requests to score", self.limits.scoring))

            def run() -> bytes:
                return score_rows(self.models.current(name), body, content_type, self._stopping.is_set)

            results = await asyncio.get_running_loop().run_in_executor(self._threads, run)
        return Response(results, media_type=JSON)

    async def jobs(self, request: Request) -> Response:
        if request.method != "POST":
            return _page_of(request, "jobs", [job.short() for job in self.queue])
        query = request.query_params
        options = [(name, value) for name, value in query.multi_items() if name not in ("name", "model")]
        job = self.queue.new(query.get("name", ""), query.get("model") or None, options)
        try:
            with job.upload.open("wb") as file:
                async for chunk in _chunks(request, self.limits.upload, "raise the server's --limit upload=SIZE"):
                    file.write(chunk)
                if not file.tell():
                    raise RefusedError("the request is empty; send the bytes of a file as its body")
        except BaseException:  # including a disconnected client
            with suppress(RefusedError):  # already removed if the server is stopping
                self.queue.remove(job.id)
            raise
        self.queue.start(job)
        return _started(request, job)

    async def again(self, request: Request) -> Response:
        options = request.query_params.multi_items()
        return _started(request, await asyncio.to_thread(self.queue.again, request.path_params["id"], options))

    async def job(self, request: Request) -> Response:
        if request.method == "DELETE":
            await asyncio.to_thread(self.queue.remove, request.path_params["id"])
            return Response(status_code=204)
        return JSONResponse(json_value(self.queue[request.path_params["id"]].full(request.scope["root_path"])))

    async def file(self, name: str, request: Request) -> Response:
        job = self.queue[request.path_params["id"]]
        if job.state != "done":
            raise RefusedError(f"the job is {job.state}; its files exist once it is done", 409)
        file, media_type = FILES[name]
        if not (job.folder / file).exists():
            raise RefusedError(f"{job.file} was scored with {job.model}; only jobs that train have a model file", 404)
        headers = REPORT_HEADERS if name == "report" else {"content-disposition": "attachment"}
        return FileResponse(job.folder / file, media_type=media_type, headers=headers)


async def _chunks(request: Request, limit: int, remedy: str) -> AsyncIterator[bytes]:
    """Stream the body; refuse it as soon as its length, announced or received, exceeds `limit` bytes."""
    size, too_large = 0, RefusedError(f"the request has more than {limit / 1e6:,.0f} MB; {remedy}", 413)
    if int(request.headers.get("content-length", "0")) > limit:
        raise too_large
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise too_large
        yield chunk


def _page_of(request: Request, key: str, items: Sequence[dict[str, Any]]) -> Response:
    query = {"offset": "0", "limit": "100"} | dict(request.query_params)
    for name, minimum, maximum in (("offset", 0, 10**9), ("limit", 1, 1000)):
        if not re.fullmatch("[0-9]{1,9}", query[name]) or not minimum <= int(query[name]) <= maximum:
            raise RefusedError(f"{name}={query[name]!r}: give a whole number from {minimum} to {maximum}")
    start = int(query["offset"])
    end = start + int(query["limit"])
    next_offset = end if end < len(items) else None
    return JSONResponse(json_value({key: items[start:end], "total": len(items), "next": next_offset}))


def _started(request: Request, job: Job) -> Response:
    root = request.scope["root_path"]
    return JSONResponse(json_value(job.full(root)), 202, {"location": f"{root}{API}/jobs/{job.id}"})


async def _error(request: Request, error: Exception) -> Response:
    """The error response. Details of unexpected errors are logged and not sent to the client."""
    headers = dict(getattr(error, "headers", None) or {})
    if isinstance(error, ClientDisconnect):
        status, message = 400, "the client disconnected"
    elif isinstance(error, HTTPException):
        status, message = error.status_code, f"{request.method} {request.scope['path']}: {error.detail}"
    elif isinstance(error, AddmlError):
        status, message = getattr(error, "status", 422), str(error)
    elif isinstance(error, OSError) and error.errno == errno.ENOSPC:
        status, message = 507, DISK_FULL
    else:
        logging.getLogger("addml").error("%s %s", request.method, request.scope["path"], exc_info=error)
        status, message = 500, f"the server failed ({type(error).__name__}); see its terminal for details"
    if status in (429, 503):
        headers["retry-after"] = "1"
    return Response(error_json(status, message), status, headers, JSON)


class Observer:
    """Counts requests and their durations for Prometheus and writes the access log."""

    def __init__(self, access_log: str | None) -> None:
        """`access_log` is a file, or `-` for standard error."""
        self.requests, self.seconds = Counter[str](), defaultdict[str, float](int)  # by metric with labels
        self.log: IO[str] | None = sys.stderr if access_log == "-" else None
        if access_log and self.log is None:
            self.log = open(access_log, "a", encoding="utf-8")  # noqa: SIM115

    def record(self, scope: Scope, status: int, seconds: float) -> None:
        path = getattr(scope.get("route"), "path", "other")  # not the client's path, for a bounded number of labels
        method = scope["method"] if scope["method"] in METHODS else "other"
        self.requests[f'addml_requests_total{{method="{method}",path="{path}",status="{status}"}}'] += 1
        for bound in BUCKETS:
            self.seconds[f'addml_request_seconds_bucket{{path="{path}",le="{bound}"}}'] += seconds <= float(bound)
        self.seconds[f'addml_request_seconds_sum{{path="{path}"}}'] += seconds
        self.seconds[f'addml_request_seconds_count{{path="{path}"}}'] += 1
        if self.log is not None:
            client = (scope.get("client") or ("-",))[0]
            timestamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            target = scope["path"].encode("unicode_escape").decode()  # without the query, which may contain the token
            print(f"{timestamp} {client} {method} {target} {status} {seconds * 1000:.1f}ms", file=self.log, flush=True)

    def text(self, gauges: Mapping[str, float]) -> str:
        """All metrics in Prometheus' text format."""
        lines = [f"# TYPE {name} gauge\n{name} {value}" for name, value in gauges.items()]
        for name, kind, values in (
            ("addml_requests_total", "counter", self.requests),
            ("addml_request_seconds", "histogram", self.seconds),
        ):
            lines += [f"# TYPE {name} {kind}", *(f"{key} {value}" for key, value in values.items())]
        return "\n".join(lines) + "\n"
