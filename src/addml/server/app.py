"""The endpoints, what each answers, and what is counted and logged of every request."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import os
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager
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
from addml.server import CODES, Limits, RefusedError, error_json
from addml.server.access import Access, Guard
from addml.server.job import REPORT, SCORED
from addml.server.jobs import ZIPPED, Job, Jobs, resident
from addml.server.models import Models
from addml.server.openapi import API, PARAMETERS, Answer, Endpoint, document
from addml.server.row_requests import JSON, LARGE, RowRequest, score_rows
from addml.text import json_value

PAGES = {"index.html": "text/html", "inspector.js": "text/javascript", "inspector.css": "text/css"}
# The report may run its own scripts, apart from the cookie and from all that it would open here.
REPORT_POLICY = "sandbox allow-scripts allow-downloads; frame-ancestors 'self'"
RESERVED = ("name", "model")  # of the query of a job; all else are options
LARGE_AT_ONCE = 2  # bodies over a megabyte
BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)  # seconds, of the histogram
METHODS = ("GET", "HEAD", "POST", "DELETE", "PUT", "PATCH", "OPTIONS")
Found = TypeVar("Found")


def create_app(models: Models, access: Access, limits: Limits, access_log: str | None = None) -> Starlette:
    """The whole app over these models."""
    api = Api(models, limits)
    observer = Observer(access_log)
    paths: dict[str, dict[str, Answer]] = {}
    for one in (*api.endpoints(observer), *_pages()):
        paths.setdefault(one.path, {})[one.method] = one.answer

    @asynccontextmanager
    async def lifespan(app: Starlette) -> Any:
        try:
            yield
        finally:
            await api.close()

    app = Starlette(
        routes=[Route(path, _by_method(answers), methods=list(answers)) for path, answers in paths.items()],
        middleware=[Middleware(observer.middleware), Middleware(Guard, access=access)],
        exception_handlers={
            RefusedError: _refused,
            HTTPException: _not_found,
            ClientDisconnect: _gone,
            OSError: _no_room,
            Exception: _failed,
        },
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # the address of a redirect would be made of the Host header
    return app


def _by_method(answers: dict[str, Answer]) -> Answer:
    """One path, whose methods are answered by different functions."""

    async def answer(request: Request) -> Response:
        return await answers["GET" if request.method == "HEAD" else request.method](request)

    return answer


def _pages() -> Iterator[Endpoint]:
    def page(name: str) -> Answer:
        content = (resources.files("addml.server") / "static" / name).read_bytes()

        async def answer(request: Request) -> Response:
            return Response(content, media_type=f"{PAGES[name]}; charset=utf-8")

        return answer

    for name, kind in PAGES.items():
        yield Endpoint("GET", "/" if name == "index.html" else f"/{name}", page(name), name, kind)


class Api:
    """Models and jobs by REST."""

    def __init__(self, models: Models, limits: Limits) -> None:
        """Nothing is asked yet."""
        self.models, self.limits, self.work = models, limits, Jobs(models, limits)
        self._ending, self._threads = Event(), ThreadPoolExecutor(min(4, os.cpu_count() or 1), "addml score")
        self._used = Counter[str]()

    def endpoints(self, observer: Observer) -> list[Endpoint]:
        """The table of all endpoints; its own document is one of them."""
        pages, model, job = ("offset", "limit"), f"{API}/models/{{name}}", f"{API}/jobs/{{id}}"

        async def openapi(request: Request) -> Response:
            return JSONResponse(document(table, request.scope.get("root_path", "")))

        async def metrics(request: Request) -> Response:
            text = observer.text(self._measures())
            return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

        scoring, new = [404, 408, 413, 415, 422, 503], [404, 408, 413, 422, 429, 507]
        table = [
            Endpoint("GET", f"{API}/health", self.health, "The server runs", "Health", is_open=True),
            Endpoint(
                "GET", f"{API}/ready", self.ready, "Files and rows are taken", "Readiness", 200, [503], is_open=True
            ),
            Endpoint("GET", f"{API}/openapi.json", openapi, "This document", "Document"),
            Endpoint("GET", "/metrics", metrics, "Counts for Prometheus", "text/plain"),
            Endpoint("GET", f"{API}/models", self.list_models, "The models", "ModelList", 200, [422], pages),
            Endpoint("GET", model, self.model, "Profiles, settings, threshold", "Model", 200, [404]),
            Endpoint(
                "POST", f"{model}/score", self.score, "Score rows", "Scores", 200, scoring, ("reasons", "all"), "rows"
            ),
            Endpoint("GET", f"{API}/jobs", self.list_jobs, "The jobs", "JobList", 200, [422], pages),
            Endpoint("POST", f"{API}/jobs", self.new, "Upload a file", "Job", 202, new, ("name", "model"), "file"),
            Endpoint("GET", job, self.job, "Progress, then the result", "Job", 200, [404]),
            Endpoint("DELETE", job, self.remove, "Cancel, and delete the results", "", 204, [404]),
            Endpoint("POST", f"{job}/again", self.again, "Run the file again", "Job", 202, [404, 422, 429, 507]),
            *(Endpoint("GET", f"{job}/{name}", self.file(name), *FILES[name][::2], 200, [404, 409]) for name in FILES),
        ]
        return table

    async def close(self) -> None:
        """Stop everything."""
        self._ending.set()
        await asyncio.get_running_loop().run_in_executor(None, self.work.close)
        self._threads.shutdown(wait=False, cancel_futures=True)

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
        with ExitStack() as held:
            rows = RowRequest(await self._body(request, held), kind, reasons, every)
            held.enter_context(self._slot("requests to score", self.limits.scoring))
            answer = await self._in_thread(self._scored, name, rows)
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
            size = 0
            with job.upload.open("wb") as file:
                async for piece in _pieces(request, self.limits.upload, "allow more by --limit upload=SIZE"):
                    size += file.write(piece)
            if not size:
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
        return JSONResponse(_whole(request, self.work[request.path_params["id"]]))

    async def remove(self, request: Request) -> Response:
        await asyncio.get_running_loop().run_in_executor(None, self.work.remove, request.path_params["id"])
        return Response(status_code=204)

    def file(self, name: str) -> Answer:
        """What answers with a file of a job."""
        _, file, kind = FILES[name]
        headers = {"content-disposition": "attachment"}
        if name == "report":
            headers = {"content-security-policy": REPORT_POLICY}

        async def answer(request: Request) -> Response:
            job = self.work[request.path_params["id"]]
            if job.state != "done":
                raise RefusedError(f"the job is {job.state}: there is nothing to see", 409)
            if not (job.folder / file).exists():
                raise RefusedError(f"{job.file} was scored by {job.model}: nothing was learned from it", 404)
            return FileResponse(job.folder / file, media_type=kind, headers=headers)

        answer.__name__ = f"job_{name}"
        return answer

    async def _body(self, request: Request, held: ExitStack) -> bytes:
        """Rows to score; many bytes need a place of their own, since they take many times their size in memory."""
        pieces, size = list[bytes](), int(request.headers.get("content-length", 0))
        is_large = size > LARGE
        if is_large:
            held.enter_context(self._slot("large requests", LARGE_AT_ONCE))
        async for piece in _pieces(request, min(self.limits.rows, self.limits.upload), "send fewer rows at a time"):
            pieces.append(piece)
            size += len(piece)
            if not is_large and size > 2 * LARGE:  # it did not say so
                is_large = True
                held.enter_context(self._slot("large requests", LARGE_AT_ONCE))
        return b"".join(pieces)

    def _measures(self) -> dict[str, float]:
        """Values of the present."""
        return {
            "addml_models": len(list(self.models)),
            "addml_jobs_waiting": self.work.waiting,
            "addml_scoring": self._used["requests to score"],
            "process_resident_memory_bytes": resident(os.getpid()),
        }


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


def _whole(request: Request, job: Job) -> Any:
    """A job, with the addresses of its files as this client sees them."""
    about, root = job.whole(), request.scope.get("root_path", "")
    return json_value({**about, "files": {name: root + path for name, path in about["files"].items()}})


def _started(request: Request, job: Job) -> Response:
    where = f"{request.scope.get('root_path', '')}{API}/jobs/{job.id}"
    return JSONResponse(_whole(request, job), 202, {"location": where})


# Errors -----------------------------------------------------------------------------------------------------


def _error(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    later = {"retry-after": "1"} if status in (429, 503) else {}
    return Response(error_json(CODES.get(status, "error"), message), status, {**(headers or {}), **later}, JSON)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedError)
    return _error(error.status, str(error))


async def _not_found(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error(error.status_code, f"{request.method} {request.scope['path']}: {error.detail}", error.headers)


async def _gone(request: Request, error: Exception) -> Response:
    """Nobody hears it; but it is no failure of the server."""
    return Response(status_code=400)


async def _no_room(request: Request, error: Exception) -> Response:
    if not isinstance(error, OSError) or error.errno != errno.ENOSPC:
        raise error
    return _error(507, "the server has no room left on its disk; remove jobs, or send less")


async def _failed(request: Request, error: Exception) -> Response:
    logging.getLogger("addml").error("%s %s", request.method, request.scope["path"], exc_info=error)
    return _error(500, f"the server failed ({type(error).__name__}); its terminal says more")


# What is counted and logged ---------------------------------------------------------------------------------


class Observer:
    """Counts requests and their seconds for Prometheus, and writes a line for each where a log is wanted."""

    def __init__(self, access_log: str | None) -> None:
        """Where the lines go: a file, `-` for standard error, or nowhere."""
        self.counts, self.seconds = Counter[tuple[str, str, int]](), Counter[tuple[str, float]]()
        self.sums = defaultdict[str, float](float)
        self.log: IO[str] | None = sys.stderr if access_log == "-" else None
        if access_log not in (None, "-"):
            self.log = open(str(access_log), "a", encoding="utf-8")  # noqa: SIM115

    def middleware(self, app: ASGIApp) -> ASGIApp:
        """The app, observed."""

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
        self.counts[method, path, status] += 1
        self.sums[path] += seconds
        self.seconds[path, next((one for one in BUCKETS if seconds <= one), math.inf)] += 1
        if self.log is not None:
            client = (scope.get("client") or ("-",))[0]
            when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            asked = scope["path"].encode("unicode_escape").decode()  # without the query, which may hold the token
            print(f"{when} {client} {method} {asked} {status} {seconds * 1000:.1f}ms", file=self.log, flush=True)

    def text(self, measures: Mapping[str, float]) -> str:
        """All of it in Prometheus' format."""
        lines = ["# TYPE addml_requests_total counter"]
        for (method, path, status), count in sorted(self.counts.items()):
            lines.append(f'addml_requests_total{{method="{method}",path="{path}",status="{status}"}} {count}')
        lines.append("# TYPE addml_request_seconds histogram")
        for path, total in sorted(self.sums.items()):
            count = 0
            for edge in (*BUCKETS, math.inf):
                count += self.seconds[path, edge]
                label = "+Inf" if edge == math.inf else f"{edge:g}"
                lines.append(f'addml_request_seconds_bucket{{path="{path}",le="{label}"}} {count}')
            lines.append(f'addml_request_seconds_sum{{path="{path}"}} {total:.6f}')
            lines.append(f'addml_request_seconds_count{{path="{path}"}} {count}')
        for name, value in measures.items():
            lines += [f"# TYPE {name} gauge", f"{name} {value}"]
        return "\n".join(lines) + "\n"
