"""A client for `addml serve` that needs only the standard library: scores rows and uploads files."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from decimal import Decimal
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qs, quote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

API = "/api/v1"
ROWS_AT_ONCE = 10_000
BYTES_AT_ONCE = 16 * 10**6  # a server accepts 32 MB by default
HUNG_UP = (BrokenPipeError, ConnectionResetError)  # including http.client.RemoteDisconnected
FILES = ("report", "scored", "model")
LOOPBACK = re.compile(r"localhost|127(\.\d+){3}|::1")


class ServerError(RuntimeError):
    """An error reported by the server: `status` is the HTTP status, 0 without an answer; `code` names the error."""

    def __init__(self, message: str, status: int = 0, code: str = "") -> None:
        super().__init__(message)
        self.status, self.code = status, code


class Client:
    """A connection to one server.

    The token is part of the address that `addml serve` prints; otherwise pass `token` or set ADDML_TOKEN.
    """

    def __init__(self, url: str = "http://127.0.0.1:8765", token: str | None = None, *, timeout: float = 60) -> None:
        """Sends nothing yet; `timeout` is in seconds per request."""
        self._idle = list[_Connection]()  # kept open between calls
        self._address, self._timeout = _address(url), timeout
        self.url = f"{self._address.scheme}://{self._address.netloc}{self._address.path.rstrip('/')}"
        self._token = token or parse_qs(self._address.query).get("token", [None])[0] or os.environ.get("ADDML_TOKEN")

    def close(self) -> None:
        """Close the connections kept open between calls."""
        while self._idle:
            self._idle.pop().close()

    __del__ = close

    def models(self) -> list[dict[str, Any]]:
        """List the models."""
        return list(self._json("GET", f"{API}/models?limit=1000")["models"])

    def model(self, name: str) -> dict[str, Any]:
        """Describe a model: its columns with their typical values, its training and its threshold."""
        return self._json("GET", f"{API}/models/{quote(name, safe='')}")

    def score(self, model: str, rows: Any, *, reasons: int = 3, all: bool = False) -> list[dict[str, Any]]:
        """Score any number of rows: a data frame, or a list with a dict per row.

        Each result has `score`, `is_anomaly`, `p_value`, `probability` and, for anomalies or for `all`, `reasons`.
        """
        path = f"{API}/models/{quote(model, safe='')}/score"
        results: list[dict[str, Any]] = []
        for batch in _batches(rows):
            body = f'{{"rows": [{", ".join(batch)}], "reasons": {json.dumps(reasons)}, "all": {json.dumps(all)}}}'
            results += self._json("POST", path, body.encode())["results"]
        return results

    def detect(self, file: str | Path, *, model: str | None = None, **options: Any) -> dict[str, Any]:
        """Upload a file and wait for the result. Without a `model`, one is trained on the file.

        Options are those of `addml detect` and `addml score`, such as `contamination=0.02`. The `summary` of the
        returned job is the document that `--json` prints; `download` fetches its files.
        """
        path = Path(os.path.expanduser(file))
        query = _query({"name": path.name, "model": model or "", **options})
        with path.open("rb") as body:
            return self._finished(self._json("POST", f"{API}/jobs?{query}", body))

    def again(self, job: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        """Run a job's file again, with these options replacing earlier ones, and wait.

        Example: `known_anomalies=[13, 1], known_normal=[90]` trains with labels for these row numbers.
        """
        return self._finished(self._json("POST", f"{API}/jobs/{job['id']}/again?{_query(options)}", b""))

    def _finished(self, job: dict[str, Any]) -> dict[str, Any]:
        while job["state"] in ("waiting", "running"):
            time.sleep(0.2)
            job = self._json("GET", f"{API}/jobs/{job['id']}")
        if job["state"] != "done":
            error = job["error"] or {"message": job["state"], "code": job["state"]}
            message = error["message"].removeprefix(f"{job['file']}: ")
            raise ServerError(f"{job['file']}: {message}", 422, error["code"])
        return job

    def download(self, job: Mapping[str, Any], what: str, path: str | Path) -> None:
        """Save the "report", the "scored" table or the "model" (zipped) of a job as a file, whole or not at all."""
        if what not in FILES:
            raise ValueError(f"what={what!r}: give one of {', '.join(map(repr, FILES))}")
        target = Path(os.path.expanduser(path))
        unfinished = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            with self._answer("GET", f"{API}/jobs/{job['id']}/{what}") as answer, unfinished.open("wb") as file:
                shutil.copyfileobj(answer, file)
                if answer.length:  # copyfileobj does not notice a short body
                    raise IncompleteRead(b"", answer.length)
            unfinished.replace(target)
        finally:
            unfinished.unlink(missing_ok=True)

    def remove(self, job: Mapping[str, Any]) -> None:
        """Delete a job, its results and its model from the server."""
        with self._answer("DELETE", f"{API}/jobs/{job['id']}"):
            pass

    def _json(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        with self._answer(method, path, body) as answer:
            text = answer.read()
        try:
            return dict(json.loads(text))
        except (ValueError, TypeError):
            raise ServerError(f"{self.url} is not a server started by addml serve; check the address") from None

    @contextmanager
    def _answer(self, method: str, path: str, body: Any = None) -> Iterator[HTTPResponse]:
        """The answer to a request. Retries while the server is busy; keeps the connection if all of it is read."""
        end = time.monotonic() + self._timeout
        try:
            while True:
                connection, answer = self._send(method, path, body)
                wait = answer.headers.get("retry-after", "") if answer.status in (429, 503) else ""
                if not wait.isdecimal() or time.monotonic() + int(wait) > end:
                    break
                connection.close()
                time.sleep(int(wait))
            try:
                if answer.status >= 300:
                    raise _error(answer, self.url)
                yield answer
            finally:
                if answer.isclosed():
                    self._idle.append(connection)
                else:
                    connection.close()
        except (OSError, HTTPException) as error:
            remedy = "is addml serve running there? Client(timeout=...) waits longer"
            raise ServerError(f"{self.url} does not answer ({error}); {remedy}") from None

    def _send(self, method: str, path: str, body: Any) -> tuple[_Connection, HTTPResponse]:
        """Send a request over an open connection or a new one; redirects are not followed."""
        headers = {"authorization": f"Bearer {self._token}"} if self._token else {}
        if hasattr(body, "seek"):
            body.seek(0)
            headers["content-length"] = str(os.fstat(body.fileno()).st_size)
        elif self._idle:
            connection = self._idle.pop()
            with suppress(*HUNG_UP):  # the server has closed it
                connection.request(method, connection.prefix + path, body, headers)
                return connection, connection.getresponse()
            connection.close()
        connection = _connect(self._address, self._timeout)
        connection.request(method, connection.prefix + path, body, headers)
        return connection, connection.getresponse()


def _error(answer: HTTPResponse, url: str) -> ServerError:
    if answer.status < 400:
        where = answer.headers.get("location", "another address")
        return ServerError(f"{url} redirects to {where}; the token is not sent there", answer.status)
    try:
        error = json.loads(answer.read())["error"]
        return ServerError(str(error["message"]), answer.status, str(error["code"]))
    except (ValueError, KeyError, TypeError, OSError, HTTPException):
        return ServerError(f"{answer.status} {answer.reason}", answer.status)


class _Connection(HTTPConnection):
    """Reads the answer of a server that refuses an upload before it has read all of it."""

    prefix = ""  # before every path

    def endheaders(self, *args: Any, **kwargs: Any) -> None:
        try:
            super().endheaders(*args, **kwargs)
        except HUNG_UP:
            if self.sock is None:  # never connected, so there is no answer to read
                raise


class _SecureConnection(_Connection, HTTPSConnection):
    """The same with TLS."""


def _connect(address: SplitResult, timeout: float) -> _Connection:
    """Connect to the server, through the environment's proxy if there is one; loopback bypasses it."""
    host, is_secure = address.hostname or "", address.scheme == "https"
    is_direct = LOOPBACK.fullmatch(host) or proxy_bypass(host)
    proxy = "" if is_direct else getproxies().get(address.scheme, "")
    hop = urlsplit(proxy if "//" in proxy else f"//{proxy}") if proxy else address
    connection = (_SecureConnection if is_secure else _Connection)(hop.hostname or "", hop.port, timeout=timeout)
    connection.prefix = address.path.rstrip("/")
    if proxy and is_secure:
        connection.set_tunnel(host, address.port)
    elif proxy:
        connection.prefix = f"http://{address.netloc}{connection.prefix}"
    return connection


def _address(url: str) -> SplitResult:
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.netloc and parts.port != 0:  # .port may raise ValueError
            return parts
    raise ValueError(f"url={url!r}: give an address such as http://127.0.0.1:8765")


def _query(options: Mapping[str, Any]) -> str:
    query = {name: value for name, value in options.items() if value is not None}
    lists = {name: ",".join(map(str, value)) for name, value in query.items() if isinstance(value, list | tuple)}
    return urlencode(query | lists)


def _batches(rows: Any) -> Iterator[list[str]]:
    """The rows as JSON texts in batches. Every row gets all names, with null where it has no value."""
    if not isinstance(rows, Sequence) or not all(isinstance(row, Mapping) for row in rows):
        import narwhals.stable.v2 as nw

        try:
            rows = list(nw.from_native(rows, eager_only=True).rows(named=True))
        except TypeError:
            kind = type(rows).__name__
            raise TypeError(f"rows has type {kind}; give a data frame, or a list with a dict per row") from None
    nulls: dict[str, Any] = {str(name): None for row in rows for name in row}
    batch: list[str] = []
    size = 0
    for number, row in enumerate(rows, start=1):
        text = json.dumps(nulls | {str(name): _plain(row[name], name, number) for name in row}, default=str)
        if batch and (len(batch) == ROWS_AT_ONCE or size + len(text) > BYTES_AT_ONCE):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += len(text)
    if batch:
        yield batch


def _plain(value: Any, name: Any, row: int) -> Any:
    """A cell as a JSON value: None for NaN, NaT and NA. JSON has no infinity."""
    try:
        if value is None or (not hasattr(value, "__len__") and bool(value != value)):
            return None
    except TypeError:  # pandas.NA cannot be compared
        return None
    if isinstance(value, Decimal):
        value = float(value)
    if getattr(value, "shape", None) == ():  # .item() of some NumPy times is an int
        value = str(value) if value.dtype.kind in "mM" else value.item()
    if isinstance(value, float) and math.isinf(value):
        raise ValueError(f"row {row}: {name} is {value}; give a finite number, or None for a missing value")
    if isinstance(value, bytes) or hasattr(value, "shape"):
        raise ValueError(f"row {row}: {name} has type {type(value).__name__}; give a number, text or date")
    return value
