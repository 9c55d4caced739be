"""The endpoints, what each answers, and what is counted and logged of every request."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from importlib import resources
from threading import Event
from typing import IO, Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from addml import __version__
from addml.errors import AddmlError
from addml.server import CODES, NO_ROOM, Limits, RefusedError, error_json
from addml.server.access import Access, Guard
from addml.server.job import REPORT, SCORED
from addml.server.jobs import ZIPPED, Job, Jobs, resident
from addml.server.models import Models
from addml.server.openapi import API, PARAMETERS, Answer, Endpoint, document
from addml.server.row_requests import JSON, LARGE, RowRequest, score_rows
from addml.text import json_value

PAGES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/inspector.js": ("inspector.js", "text/javascript; charset=utf-8"),
    "/inspector.css": ("inspector.css", "text/css; charset=utf-8"),
}
# The report may run its own scripts, apart from the cookie and from all that it would open here.
REPORT_POLICY = "sandbox allow-scripts allow-downloads; frame-ancestors 'self'"
RESERVED = ("name", "model")  # of the query of a job; all else are options
LARGE_AT_ONCE = 2  # bodies over a megabyte
BUCKETS = ("0.002", "0.005", "0.01", "0.02", "0.05", "0.1", "0.2", "0.5", "1", "5", "+Inf")  # seconds
METHODS = ("GET", "HEAD", "POST", "DELETE", "PUT", "PATCH", "OPTIONS")
Found = TypeVar("Found")


def create_app(models: Models, access: Access, limits: Limits, access_log: str | None = None) -> Starlette:
    """The whole app over these models."""
    observer = Observer(access_log)
    api, paths = Api(models, limits, observer), dict[str, dict[str, Answer]]()
    for one in api.endpoints:
        paths.setdefault(one.path, {})[one.method] = one.answer
    routes = [Route(path, partial(_by_method, answers), methods=list(answers)) for path, answers in paths.items()]
    for path, (name, kind) in PAGES.items():
        content = (resources.files("addml.server") / "static" / name).read_bytes()
        routes.append(Route(path, partial(_page, Response(content, media_type=kind))))

    @asynccontextmanager
    async def lifespan(app: Starlette) -> Any:
        try:
            yield
        finally:
            await api.close()

    app = Starlette(
        routes=routes,
        middleware=[Middleware(observer.middleware), Middleware(Guard, access=access)],
        exception_handlers={
            AddmlError: _refused,
            HTTPException: _refused,
            OSError: _refused,
            ClientDisconnect: _gone,
            Exception: _failed,
        },
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # the address of a redirect would be made of the Host header
    return app


async def _by_method(answers: dict[str, Answer], request: Request) -> Response:
    """One route for all methods of a path, so that 405 lists them all."""
    return await answers["GET" if request.method == "HEAD" else request.method](request)


async def _page(page: Response, request: Request) -> Response:
    return page


class Api:
    """Models and jobs by REST."""

    def __init__(self, models: Models, limits: Limits, observer: Observer) -> None:
        self.models, self.limits, self.observer, self.work = models, limits, observer, Jobs(models, limits)
        self._ending, self._threads = Event(), ThreadPoolExecutor(min(4, os.cpu_count() or 1), "addml score")
        self._large = ThreadPoolExecutor(LARGE_AT_ONCE, "addml score")  # of their own: single rows wait for no million
        self._used = Counter[str]()
        pages, model, job = ("offset", "limit"), f"{API}/models/{{name}}", f"{API}/jobs/{{id}}"
        scoring, new = [404, 408, 413, 415, 422, 503], [404, 408, 413, 422, 429, 507]
        ready, score = "Files and rows are taken", ("reasons", "all")
        self.endpoints = [
            Endpoint("GET", f"{API}/health", self.health, "The server runs", "Health", is_open=True),
            Endpoint("GET", f"{API}/ready", self.ready, ready, "Readiness", errors=[503], is_open=True),
            Endpoint("GET", f"{API}/openapi.json", self.openapi, "This document", "Document"),
            Endpoint("GET", "/metrics", self.metrics, "Counts for Prometheus", "text/plain"),
            Endpoint("GET", f"{API}/models", self.list_models, "The models", "ModelList", 200, [422], pages),
            Endpoint("GET", model, self.model, "Profiles, settings, threshold", "Model", 200, [404]),
            Endpoint("POST", f"{model}/score", self.score, "Score rows", "Scores", 200, scoring, score, "rows"),
            Endpoint("GET", f"{API}/jobs", self.list_jobs, "The jobs", "JobList", 200, [422], pages),
            Endpoint("POST", f"{API}/jobs", self.new, "Upload a file", "Job", 202, new, ("name", "model"), "file"),
            Endpoint("GET", job, self.job, "Progress, then the result", "Job", 200, [404]),
            Endpoint("DELETE", job, self.remove, "Cancel, and delete the results", "", 204, [404]),
            Endpoint("POST", f"{job}/again", self.again, "Run the file again", "Job", 202, [404, 422, 429, 507]),
        ]
        for name, (summary, _, kind) in FILES.items():
            answer = partial(self.file, name)
            self.endpoints.append(Endpoint("GET", f"{job}/{name}", answer, summary, kind, 200, [404, 409]))

    async def close(self) -> None:
        self._ending.set()
        await asyncio.to_thread(self.work.close)
        for threads in (self._threads, self._large):
            threads.shutdown(wait=False, cancel_futures=True)

    async def _in_thread(self, do: Callable[..., Found], *given: Any) -> Found:
        return await asyncio.get_running_loop().run_in_executor(self._threads, do, *given)

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
        about = {"ready": is_ready, "models": len(list(self.models)), "waiting": waiting}
        return JSONResponse(about, 200 if is_ready else 503)

    async def openapi(self, request: Request) -> Response:
        return JSONResponse(document(self.endpoints, _root(request)))

    async def metrics(self, request: Request) -> Response:
        present = {
            "addml_models": len(list(self.models)),
            "addml_jobs_waiting": self.work.waiting,
            "addml_scoring": self._used["requests to score"],
            "process_resident_memory_bytes": resident(os.getpid()),
        }
        return Response(self.observer.text(present), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def list_models(self, request: Request) -> Response:
        models = await self._in_thread(lambda: [self.models.fresh(one.name) for one in self.models])
        return _paged(request, "models", [model.short() for model in models])

    async def model(self, request: Request) -> Response:
        model = await self._in_thread(self.models.fresh, request.path_params["name"])
        return JSONResponse(json_value(model.whole()))

    async def score(self, request: Request) -> Response:
        name = self.models[request.path_params["name"]].name
        kind = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
        reasons, every = _asked(request, "reasons"), _asked(request, "all")
        is_large = int(request.headers.get("content-length", LARGE + 1)) > LARGE
        most = min(self.limits.rows, self.limits.upload)
        with ExitStack() as held:
            if is_large:  # bytes take many times their size in memory
                held.enter_context(self._slot("large requests", LARGE_AT_ONCE))
            body = b"".join([piece async for piece in _pieces(request, most, "send fewer rows at a time")])
            if not is_large:
                held.enter_context(self._slot("requests to score", self.limits.scoring))
            threads = self._large if is_large else self._threads
            rows = RowRequest(body, kind, reasons, every)
            answer = await asyncio.get_running_loop().run_in_executor(threads, self._scored, name, rows)
        return Response(answer, media_type=JSON)

    def _scored(self, name: str, rows: RowRequest) -> bytes:
        return score_rows(self.models.fresh(name), rows, self._ending.is_set)

    async def list_jobs(self, request: Request) -> Response:
        return _paged(request, "jobs", [job.short() for job in self.work])

    async def new(self, request: Request) -> Response:
        asked = request.query_params
        own = [(name, value) for name, value in asked.multi_items() if name not in RESERVED]
        job = self.work.new(asked.get("name", ""), asked.get("model") or None, own)
        try:
            with job.upload.open("wb") as file:
                async for piece in _pieces(request, self.limits.upload, "allow more by --limit upload=SIZE"):
                    file.write(piece)
                if not file.tell():
                    raise RefusedError("the request is empty; send the bytes of a file as its body")
        except BaseException:  # a client that goes away too
            self.work.discard(job)
            raise
        self.work.start(job)
        return _started(request, job)

    async def again(self, request: Request) -> Response:
        asked = request.query_params.multi_items()
        job = await self._in_thread(self.work.again, request.path_params["id"], asked)
        return _started(request, job)

    async def job(self, request: Request) -> Response:
        return JSONResponse(json_value(self.work[request.path_params["id"]].whole(_root(request))))

    async def remove(self, request: Request) -> Response:
        await asyncio.to_thread(self.work.remove, request.path_params["id"])
        return Response(status_code=204)

    async def file(self, name: str, request: Request) -> Response:
        job, (_, file, kind) = self.work[request.path_params["id"]], FILES[name]
        if job.state != "done":
            raise RefusedError(f"the job is {job.state}: there is nothing to see", 409)
        if not (job.folder / file).exists():
            raise RefusedError(f"{job.file} was scored by {job.model}: nothing was learned from it", 404)
        is_report = name == "report"
        headers = {"content-security-policy": REPORT_POLICY} if is_report else {"content-disposition": "attachment"}
        return FileResponse(job.folder / file, media_type=kind, headers=headers)


FILES = {
    "report": ("The report", REPORT, "text/html"),
    "scored": ("The scored table", SCORED, "text/csv"),
    "model": ("The model, as a zip archive", ZIPPED, "application/zip"),
}


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


def _asked(request: Request, name: str) -> Any:
    """A parameter of the query, or its default."""
    schema, _ = PARAMETERS[name]
    if name not in request.query_params:
        return schema["default"]
    text = request.query_params[name]
    if schema["type"] == "boolean" and text in ("true", "false"):
        return text == "true"
    least, most = schema.get("minimum", 0), schema.get("maximum", 10**9)
    if schema["type"] == "integer" and re.fullmatch("[0-9]{1,9}", text) and least <= int(text) <= most:
        return int(text)
    wanted = "true or false" if schema["type"] == "boolean" else f"a whole number of {least} to {most}"
    raise RefusedError(f"{name}={text!r}: give {wanted}")


def _paged(request: Request, name: str, items: Sequence[dict[str, Any]]) -> Response:
    """Some items of a list, and where the rest begins."""
    start, most = _asked(request, "offset"), _asked(request, "limit")
    end = start + most if start + most < len(items) else None
    return JSONResponse(json_value({name: items[start : start + most], "total": len(items), "next": end}))


def _root(request: Request) -> str:
    """Before every path, as clients see it."""
    return str(request.scope.get("root_path", ""))


def _started(request: Request, job: Job) -> Response:
    root = _root(request)
    return JSONResponse(json_value(job.whole(root)), 202, {"location": f"{root}{API}/jobs/{job.id}"})


# Errors -----------------------------------------------------------------------------------------------------


def _error(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    later = {"retry-after": "1"} if status in (429, 503) else {}
    return Response(error_json(CODES.get(status, "error"), message), status, {**(headers or {}), **later}, JSON)


async def _refused(request: Request, error: Exception) -> Response:
    """What the client can correct or wait for: a path, a method, a value, the state of the server."""
    if isinstance(error, HTTPException):
        return _error(error.status_code, f"{request.method} {request.scope['path']}: {error.detail}", error.headers)
    if not isinstance(error, OSError):
        return _error(getattr(error, "status", 422), str(error))
    if error.errno != errno.ENOSPC:
        raise error
    return _error(507, NO_ROOM)


async def _gone(request: Request, error: Exception) -> Response:
    """Nobody hears it; but it is no failure of the server."""
    return Response(status_code=400)


async def _failed(request: Request, error: Exception) -> Response:
    logging.getLogger("addml").error("%s %s", request.method, request.scope["path"], exc_info=error)
    return _error(500, f"the server failed ({type(error).__name__}); its terminal says more")


# What is counted and logged ---------------------------------------------------------------------------------


class Observer:
    """Counts requests and their seconds for Prometheus, and writes a line for each where a log is wanted."""

    def __init__(self, access_log: str | None) -> None:
        """Where the lines go: a file, `-` for standard error, or nowhere."""
        self.requests, self.seconds = Counter[str](), defaultdict[str, float](int)  # by names with labels
        self.log: IO[str] | None = sys.stderr if access_log == "-" else None
        if access_log not in (None, "-"):
            self.log = open(str(access_log), "a", encoding="utf-8")  # noqa: SIM115

    def middleware(self, app: ASGIApp) -> ASGIApp:
        async def observed(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                return await app(scope, receive, send)
            began, status = time.perf_counter(), 499  # of clients that went away

            async def sending(message: Message) -> None:
                nonlocal status
                status = message.get("status", status)
                await send(message)

            try:
                await app(scope, receive, sending)
            finally:
                self._note(scope, status, time.perf_counter() - began)

        return observed

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
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
        families: dict[str, Mapping[str, float]] = {f"{name} gauge": {name: present[name]} for name in present}
        families |= {"addml_requests_total counter": self.requests, "addml_request_seconds histogram": self.seconds}
        lines = ""
        for name, samples in families.items():
            lines += f"# TYPE {name}\n" + "".join(f"{one} {value}\n" for one, value in samples.items())
        return lines
