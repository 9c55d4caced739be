"""Speaks to `addml serve`: scores rows and hands in files, with nothing but the standard library. Level 12."""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import parse_qs, quote, urlencode, urlsplit
from urllib.request import Request, urlopen

ROWS_AT_ONCE = 10_000
OVER = ("done", "failed", "stopped")
FILES = ("report", "scored")


class ServerError(RuntimeError):
    """What the server says is wrong; `status` is that of HTTP, 0 where it does not answer."""

    def __init__(self, words: str, status: int = 0) -> None:
        """The words and the status."""
        super().__init__(words)
        self.status = status


class Client:
    """One server.

    The address may be the one that `addml serve` prints, token and all; else the token is given here or in the
    environment variable ADDML_TOKEN.
    """

    def __init__(self, url: str = "http://127.0.0.1:8765", token: str | None = None, *, timeout: float = 60) -> None:
        """Nothing is sent yet; `timeout` is in seconds, of every request."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ValueError(f"url={url!r}: give an address such as http://127.0.0.1:8765")
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._token = token or parse_qs(parts.query).get("token", [None])[0] or os.environ.get("ADDML_TOKEN")
        self._timeout = timeout

    def models(self) -> list[dict[str, Any]]:
        """What models there are."""
        return list(self._json("GET", "/api/models")["models"])

    def model(self, name: str) -> dict[str, Any]:
        """All that is known of one: its columns, what is usual in them, its training and its threshold."""
        return dict(self._json("GET", f"/api/models/{quote(name, safe='')}"))

    def score(self, model: str, rows: Any, *, reasons: int = 3, all: bool = False) -> list[dict[str, Any]]:
        """One result a row, of any number of rows: a data frame, or a list with a dict for each row.

        A result has `score`, `is_anomaly`, `probability`, `confidence` and `reasons`: of the anomalies, or of `all`.
        """
        path, results = f"/api/models/{quote(model, safe='')}/score", list[dict[str, Any]]()
        for part in _parts(rows):
            asked = json.dumps({"rows": part, "reasons": reasons, "all": all}, default=str).encode()
            results += self._json("POST", path, asked)["results"]
        return results

    def detect(self, file: str | Path, *, model: str | None = None, **options: Any) -> dict[str, Any]:
        """Hand in a file and wait for what is found in it, by a model or, without one, by learning from it.

        Options are those of `addml detect` and `addml score`, such as `contamination=0.02`. The result's `summary` is
        what `--json` prints; `download` fetches the files.
        """
        path = Path(os.path.expanduser(file))
        named = {key: _option(value) for key, value in options.items() if value is not None}
        query = urlencode({"name": path.name, "model": model or "", **named})
        with path.open("rb") as body:
            job = self._json("POST", f"/api/jobs?{query}", body, {"content-length": str(path.stat().st_size)})
        while job["state"] not in OVER:
            time.sleep(0.2)
            job = self._json("GET", f"/api/jobs/{job['id']}")
        if job["state"] != "done":
            raise ServerError(f"{path.name}: {job['error'] or job['state']}", 422)
        return dict(job)

    def download(self, job: Mapping[str, Any], what: str, path: str | Path) -> None:
        """The "report" or the "scored" table of a job as a file, which is there whole or not at all."""
        if what not in FILES:
            raise ValueError(f"what={what!r}: give one of {', '.join(map(repr, FILES))}")
        target = Path(os.path.expanduser(path))
        unfinished = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            with self._open("GET", f"/api/jobs/{job['id']}/{what}") as answer, unfinished.open("wb") as file:
                shutil.copyfileobj(answer, file)
            unfinished.replace(target)
        finally:
            unfinished.unlink(missing_ok=True)

    def remove(self, job: Mapping[str, Any]) -> None:
        """Let the server forget a job, and the model that it learned."""
        self._open("DELETE", f"/api/jobs/{job['id']}").close()

    def _json(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        with self._open(method, path, body, headers) as answer:
            return json.load(answer)

    def _open(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        own = {"authorization": f"Bearer {self._token}"} if self._token else {}
        request = Request(self.url + path, body, {**own, **(headers or {})}, method=method)
        try:
            return urlopen(request, timeout=self._timeout)
        except HTTPError as error:
            raise ServerError(_said(error), error.code) from None
        except URLError as error:
            if isinstance(error.reason, BrokenPipeError | ConnectionResetError):
                raise ServerError(f"{self.url} hung up; is the file larger than its --limit?", 413) from None
            raise ServerError(f"{self.url} does not answer ({error.reason}); is addml serve running there?") from None


def _said(error: HTTPError) -> str:
    """The server's words, or what there is in their place."""
    try:
        return str(json.load(error)["error"])
    except (ValueError, KeyError, TypeError):
        return f"{error.code} {error.reason}"


def _option(value: Any) -> str:
    """A value as a query holds it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(str, value)) if isinstance(value, Sequence) and not isinstance(value, str) else str(value)


def _parts(rows: Any) -> Iterator[list[dict[str, Any]]]:
    """The rows as JSON can hold them, some at a time."""
    if not isinstance(rows, Sequence):
        import narwhals.stable.v2 as nw

        rows = nw.from_native(rows, eager_only=True).rows(named=True)
    for start in range(0, len(rows), ROWS_AT_ONCE):
        yield [_plain(row, start + place) for place, row in enumerate(rows[start : start + ROWS_AT_ONCE], start=1)]


def _plain(row: Mapping[str, Any], place: int) -> dict[str, Any]:
    """A row without what is not a number, which is a gap; infinity has no name in JSON."""
    plain = {}
    for name, value in row.items():
        value = value.item() if hasattr(value, "item") else value
        if isinstance(value, float) and math.isinf(value):
            raise ValueError(f"row {place}: {name} is {value}; give a finite number, or None where nothing is known")
        plain[str(name)] = None if value is None or value != value else value
    return plain
