"""A small file server on this machine, whose connections can break off."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np


@dataclass
class Server:
    """The files, the bytes of each response before the connection breaks, and the requested paths."""

    files: dict[str, bytes] = field(default_factory=dict)
    cuts: list[int] = field(default_factory=list)  # bytes of the next answers; all of them when empty
    asked: list[str] = field(default_factory=list)  # paths
    address: str = ""


@contextmanager
def serving(files: dict[str, bytes]) -> Iterator[Server]:
    """Serve these files by path."""
    server = Server(dict(files))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self, server)

        def log_message(self, *words: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        server.address = f"http://127.0.0.1:{http.server_port}"
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server
        http.shutdown()
        thread.join()


def answer(request: BaseHTTPRequestHandler, server: Server) -> None:
    """One file, or its beginning."""
    server.asked.append(request.path)
    content = server.files.get(request.path)
    if content is None:
        return request.send_error(404)
    request.send_response(200)
    request.send_header("Content-Length", str(len(content)))
    request.end_headers()
    request.wfile.write(content[: server.cuts.pop(0) if server.cuts else None])


def closed_port() -> str:
    """An address at which nobody answers."""
    with serving({}) as server:
        return server.address


def npz(X: np.ndarray, y: np.ndarray) -> bytes:
    """The bytes of an .npz file."""
    file = io.BytesIO()
    np.savez(file, X=X, y=y)
    return file.getvalue()


def small_table(rows: int = 50, columns: int = 4, anomalies: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Random numbers with a gap and a label that marks the first rows."""
    X = np.random.default_rng(3).normal(size=(rows, columns))
    X[0, 0] = np.nan
    return X, (np.arange(rows) < anomalies).astype(np.int64)
