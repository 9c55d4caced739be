"""Speaks to `addml serve`: scores rows and hands in files, with nothing but the standard library."""

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
BYTES_AT_ONCE = 16 * 10**6  # a server takes 32 MB, if not less is allowed there
HUNG_UP = (BrokenPipeError, ConnectionResetError)  # http.client.RemoteDisconnected is one of them
FILES = ("report", "scored", "model")
LOOPBACK = re.compile(r"localhost|127(\.\d+){3}|::1")


class ServerError(RuntimeError):
    """What the server says is wrong; `status` is that of HTTP, 0 where it does not answer, `code` names the error."""

    def __init__(self, words: str, status: int = 0, code: str = "") -> None:
        super().__init__(words)
        self.status, self.code = status, code


class Client:
    """One server.

    The address may be the one that `addml serve` prints, token and all; else the token is given here or in the
    environment variable ADDML_TOKEN.
    """

    def __init__(self, url: str = "http://127.0.0.1:8765", token: str | None = None, *, timeout: float = 60) -> None:
        """Nothing is sent yet; `timeout` is in seconds, of every request."""
        self._idle = list[_Connection]()  # connections that are kept open between calls
        self._address, self._timeout = _address(url), timeout
        self.url = f"{self._address.scheme}://{self._address.netloc}{self._address.path.rstrip('/')}"
        self._token = token or parse_qs(self._address.query).get("token", [None])[0] or os.environ.get("ADDML_TOKEN")

    def close(self) -> None:
        """Close the connections that are kept open between calls."""
        while self._idle:
            self._idle.pop().close()

    __del__ = close

    def models(self) -> list[dict[str, Any]]:
        """What models there are."""
        return list(self._json("GET", f"{API}/models?limit=1000")["models"])

    def model(self, name: str) -> dict[str, Any]:
        """All that is known of one: its columns, what is usual in them, its training and its threshold."""
        return self._json("GET", f"{API}/models/{quote(name, safe='')}")

    def score(self, model: str, rows: Any, *, reasons: int = 3, all: bool = False) -> list[dict[str, Any]]:
        """One result a row, of any number of rows: a data frame, or a list with a dict for each row.

        A result has `score`, `is_anomaly`, `p_value`, `probability` and `reasons`: of the anomalies, or of `all`.
        """
        path, results = f"{API}/models/{quote(model, safe='')}/score", list[dict[str, Any]]()
        for part in _parts(rows):
            asked = f'{{"rows": [{", ".join(part)}], "reasons": {json.dumps(reasons)}, "all": {json.dumps(all)}}}'
            results += self._json("POST", path, asked.encode())["results"]
        return results

    def detect(self, file: str | Path, *, model: str | None = None, **options: Any) -> dict[str, Any]:
        """Hand in a file and wait for what is found in it, by a model or, without one, by learning from it.

        Options are those of `addml detect` and `addml score`, such as `contamination=0.02`. The result's `summary` is
        what `--json` prints; `download` fetches the files.
        """
        path = Path(os.path.expanduser(file))
        query = _query({"name": path.name, "model": model or "", **options})
        with path.open("rb") as body:
            return self._finished(self._json("POST", f"{API}/jobs?{query}", body))

    def again(self, job: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        """The file of a job once more, with these options in place of earlier ones, and wait.

        `known_anomalies=[13, 1], known_normal=[90]` learns from what is known of rows, by the numbers in the list.
        """
        return self._finished(self._json("POST", f"{API}/jobs/{job['id']}/again?{_query(options)}", b""))

    def _finished(self, job: dict[str, Any]) -> dict[str, Any]:
        while job["state"] in ("waiting", "running"):
            time.sleep(0.2)
            job = self._json("GET", f"{API}/jobs/{job['id']}")
        if job["state"] != "done":
            error = job["error"] or {"message": job["state"], "code": job["state"]}
            raise ServerError(f"{job['file']}: {error['message']}", 422, error["code"])
        return job

    def download(self, job: Mapping[str, Any], what: str, path: str | Path) -> None:
        """The "report", the "scored" table or the "model" (zipped) of a job as a file, there whole or not at all."""
        if what not in FILES:
            raise ValueError(f"what={what!r}: give one of {', '.join(map(repr, FILES))}")
        target = Path(os.path.expanduser(path))
        unfinished = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            with self._answer("GET", f"{API}/jobs/{job['id']}/{what}") as answer, unfinished.open("wb") as file:
                shutil.copyfileobj(answer, file)
                if answer.length:  # reading piece by piece does not complain
                    raise IncompleteRead(b"", answer.length)
            unfinished.replace(target)
        finally:
            unfinished.unlink(missing_ok=True)

    def remove(self, job: Mapping[str, Any]) -> None:
        """Let the server forget a job, and the model that it learned."""
        with self._answer("DELETE", f"{API}/jobs/{job['id']}"):
            pass

    # Requests -----------------------------------------------------------------------------------------------

    def _json(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        with self._answer(method, path, body) as answer:
            text = answer.read()
        try:
            return dict(json.loads(text))
        except (ValueError, TypeError):
            raise ServerError(f"{self.url} answers, but not as addml serve does; is it another server?") from None

    @contextmanager
    def _answer(self, method: str, path: str, body: Any = None) -> Iterator[HTTPResponse]:
        """The answer; a busy server is asked again. The connection stays open, if the answer was read to its end."""
        end = time.monotonic() + self._timeout
        try:
            connection, answer = self._send(method, path, body)
            while answer.status in (429, 503) and (later := answer.headers.get("retry-after", "")).isdecimal():
                if time.monotonic() + int(later) > end:
                    break
                connection.close()
                time.sleep(int(later))
                connection, answer = self._send(method, path, body)
            if answer.status >= 300:
                raise _error(answer, self.url)
            yield answer
            if answer.isclosed():
                self._idle.append(connection)
        except (OSError, HTTPException) as error:
            words = f"does not answer ({error}); is addml serve running there? Client(timeout=...) waits longer"
            raise ServerError(f"{self.url} {words}") from None

    def _send(self, method: str, path: str, body: Any) -> tuple[_Connection, HTTPResponse]:
        """Send a request, by a connection that is open or by a new one; redirects are not followed."""
        headers = {"authorization": f"Bearer {self._token}"} if self._token else {}
        if hasattr(body, "seek"):
            body.seek(0)
            headers["content-length"] = str(os.fstat(body.fileno()).st_size)
        elif self._idle:
            connection = self._idle.pop()
            with suppress(*HUNG_UP):  # closed by the server meanwhile
                connection.request(method, connection.prefix + path, body, headers)
                return connection, connection.getresponse()
            connection.close()
        connection = _connect(self._address, self._timeout)
        connection.request(method, connection.prefix + path, body, headers)
        return connection, connection.getresponse()


def _error(answer: HTTPResponse, url: str) -> ServerError:
    """The server's words, or what there is in their place."""
    if answer.status < 400:
        where = answer.headers.get("location", "elsewhere")
        return ServerError(f"{url} redirects to {where}; the token is not sent there", answer.status)
    try:
        said = json.loads(answer.read())["error"]
        return ServerError(str(said["message"]), answer.status, str(said["code"]))
    except (ValueError, KeyError, TypeError, OSError, HTTPException):
        return ServerError(f"{answer.status} {answer.reason}", answer.status)


class _Connection(HTTPConnection):
    """Reads the answer of a server that did not wait for all that is sent: what refuses a file does not read it."""

    prefix = ""  # before every path

    def endheaders(self, *about: Any, **more: Any) -> None:
        """Send all, until the server hangs up, whose answer is there by then."""
        try:
            super().endheaders(*about, **more)
        except HUNG_UP:
            if self.sock is None:  # it was never connected
                raise


class _SecureConnection(_Connection, HTTPSConnection):
    """The same over TLS."""


def _connect(address: SplitResult, timeout: float) -> _Connection:
    """A connection to the server, through the proxy of the environment, if there is one; loopback needs none."""
    kind, host = _SecureConnection if address.scheme == "https" else _Connection, address.hostname or ""
    is_direct = LOOPBACK.fullmatch(host) or proxy_bypass(host)
    proxy = "" if is_direct else getproxies().get(address.scheme, "")
    way = urlsplit(proxy if "//" in proxy else f"//{proxy}") if proxy else address
    connection = kind(way.hostname or "", way.port, timeout=timeout)
    connection.prefix = address.path.rstrip("/")
    if proxy and address.scheme == "https":
        connection.set_tunnel(host, address.port)
    elif proxy:
        connection.prefix = f"http://{address.netloc}{connection.prefix}"
    return connection


def _address(url: str) -> SplitResult:
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.netloc and parts.port != 0:  # a port may be no number
            return parts
    raise ValueError(f"url={url!r}: give an address such as http://127.0.0.1:8765")


def _query(options: Mapping[str, Any]) -> str:
    """The options that are given; a list is separated by commas."""
    given = {name: value for name, value in options.items() if value is not None}
    lists = {name: ",".join(map(str, value)) for name, value in given.items() if isinstance(value, list | tuple)}
    return urlencode(given | lists)


# Rows -------------------------------------------------------------------------------------------------------


def _parts(rows: Any) -> Iterator[list[str]]:
    """The rows as JSON, some at a time, all with the same names: what some rows lack is a gap in any part."""
    if not isinstance(rows, Sequence) or not all(isinstance(row, Mapping) for row in rows):
        import narwhals.stable.v2 as nw

        try:
            rows = list(nw.from_native(rows, eager_only=True).rows(named=True))
        except TypeError:
            kind = type(rows).__name__
            raise TypeError(f"rows: of type {kind}; give a data frame, or a list with a dict for each row") from None
    lacking, part, size = {str(name): None for row in rows for name in row}, list[str](), 0
    for place, row in enumerate(rows, start=1):
        text = json.dumps(lacking | {str(name): _plain(row[name], name, place) for name in row}, default=str)
        if part and (len(part) == ROWS_AT_ONCE or size + len(text) > BYTES_AT_ONCE):
            yield part
            part, size = [], 0
        part.append(text)
        size += len(text)
    if part:
        yield part


def _plain(value: Any, name: Any, place: int) -> Any:
    """A cell as JSON has it: a gap for what is not a number or a time; infinity has no name in JSON."""
    try:
        if value is None or (not hasattr(value, "__len__") and bool(value != value)):
            return None
    except TypeError:  # pandas' NA, which is not even unequal
        return None
    if isinstance(value, Decimal):
        value = float(value)
    if getattr(value, "shape", None) == ():  # as text, since some of numpy's times are whole numbers for Python
        value = str(value) if value.dtype.kind in "mM" else value.item()
    if isinstance(value, float) and math.isinf(value):
        raise ValueError(f"row {place}: {name} is {value}; give a finite number, or None where nothing is known")
    if isinstance(value, bytes) or hasattr(value, "shape"):
        raise ValueError(f"row {place}: {name} is of type {type(value).__name__}; give one number, text or date")
    return value
