"""`addml serve` (extra `web`): REST and the inspector, for saved models and uploaded files."""

from __future__ import annotations

import json
import secrets
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from ipaddress import ip_address
from typing import Any

from addml import parameters
from addml.compute import blas_threads
from addml.errors import USAGE, AddmlError
from addml.text import did_you_mean

SWITCH_INTERVAL = 0.0005  # seconds between thread switches (default: 0.005), so that scoring delays no other request
MIN_TOKEN = 16  # characters
DISK_FULL = "the server's disk is full; delete jobs, or send less"
CODES = {
    400: "bad_request",
    401: "unauthorized",
    404: "not_found",
    405: "method_not_allowed",
    408: "timeout",
    409: "not_finished",
    413: "too_large",
    415: "unsupported_type",
    422: "invalid",
    429: "queue_full",
    500: "internal",
    503: "busy",
    507: "disk_full",
}


class RefusedError(AddmlError):
    """A request that the client can correct or repeat; `status` is the HTTP status."""

    def __init__(self, message: str, status: int = 422) -> None:
        super().__init__(message, CODES[status])
        self.status = status


def error_json(status: int, message: str) -> bytes:
    return json.dumps({"error": {"code": CODES.get(status, "error"), "message": message}}).encode()


@dataclass(frozen=True)
class Limits:
    """The limits of `--limit`. docs/serving.md describes what happens beyond each."""

    upload: int = 200 * 10**6  # bytes of a file
    unpacked: int = 10**9  # bytes of a file after decompression
    rows: int = 32 * 10**6  # bytes of rows in one request
    memory: int = 4 * 10**9  # bytes of memory of a job
    seconds: float = 900  # run time of a job
    queue: int = 20  # waiting jobs
    scoring: int = 4  # requests being scored or waiting; with 6, p99 at twice the load was 11 times higher
    connections: int = 256
    timeout: float = 20  # seconds without a complete request, or without progress of a body

    @classmethod
    def parse(cls, texts: Sequence[str]) -> Limits:
        names = [field.name for field in fields(cls)]
        values: dict[str, Any] = {}
        for text in texts:
            name, _, value = text.partition("=")
            if name not in names:
                hint = did_you_mean(name, names)
                raise AddmlError(f"--limit {text}: give NAME=VALUE; the names are {', '.join(names)}.{hint}", USAGE)
            if name in ("upload", "unpacked", "rows", "memory"):
                values[name] = parameters.size("--limit", value)
            elif value.isdecimal() and int(value):
                values[name] = int(value)
            else:
                raise AddmlError(f"--limit {text}: give a whole number of at least 1", USAGE)
        return cls(**values)


def serve(
    folders: Sequence[str],
    limits: Limits,
    *,
    host: str,
    port: int,
    token: str | None,
    root_path: str,
    access_log: str | None,
    device: str,
) -> None:
    """Run the server until it is interrupted. Prints its address, with the token unless `token` sets it."""
    try:
        from addml.server.access import Server
        from addml.server.app import create_app
        from addml.server.models import Models
    except ImportError as error:
        raise AddmlError(f"addml serve needs Starlette and uvicorn: pip install 'addml[web]' ({error})") from None

    if token:
        check_token(token)
    models = Models(device, folders)
    server_socket = listen(host, port)
    secret = token or secrets.token_urlsafe(32)
    root = f"/{root_path.strip('/')}".rstrip("/")
    announce = partial(_announce, server_socket, host, "..." if token else secret)
    sys.setswitchinterval(SWITCH_INTERVAL)
    with blas_threads(1):  # as in files, for bit-identical scores
        app = create_app(models, secret, f"addml-{server_socket.getsockname()[1]}", limits, access_log)
        Server(app, limits, root, announce).run(sockets=[server_socket])


def check_token(token: str) -> None:
    """A token must be hard to guess and valid in an HTTP header."""
    if len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable():
        remedy = f"give at least {MIN_TOKEN} printable ASCII characters, or leave it out for a random token"
        raise AddmlError(f"--token: {len(token)} characters; {remedy}")


def _announce(server_socket: socket.socket, host: str, token: str) -> None:
    address, port = server_socket.getsockname()[:2]
    print(f"Inspector and REST at http://{f'[{host}]' if ':' in host else host}:{port}/?token={token}")
    if not ip_address(address).is_loopback:
        print(
            f"Warning: other machines can reach {host}. Anyone with the token can use the models and upload files. "
            "Nothing is encrypted: put a TLS proxy in front.",
            file=sys.stderr,
        )
    print("Press Ctrl+C to stop.", flush=True)


def listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        server_socket = socket.create_server((host, port), family=family)
        # asyncio sets TCP_NODELAY only if the socket's protocol is TCP; otherwise small answers wait 40 ms for an ACK.
        return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=server_socket.detach())
    except OSError as error:
        remedy = "give another --port, or 0 for a free one" if error.errno else "give another --host"
        raise AddmlError(f"{host}:{port}: cannot listen here ({error.strerror or error}); {remedy}.") from error
