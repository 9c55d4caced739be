"""REST and the inspector: one small app over saved models and uploaded files.

Starlette and uvicorn (extra `web`) are imported by the modules of this folder and nowhere else.
"""

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

SWITCH = 0.0005  # seconds between threads: requests are answered while rows are scored (the default is 5 ms)
LEAST_TOKEN = 16  # characters
NO_ROOM = "the server has no room left on its disk; remove jobs, or send less"
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
    """A request that the client can correct or repeat, with the status of the answer."""

    def __init__(self, message: str, status: int = 422) -> None:
        super().__init__(message, CODES[status])
        self.status = status


def error_json(status: int, message: str) -> bytes:
    """The body of an answer that is an error."""
    return json.dumps({"error": {"code": CODES.get(status, "error"), "message": message}}).encode()


@dataclass(frozen=True)
class Limits:
    """What clients may take: bytes, seconds and counts. docs/serving.md says what happens beyond each."""

    upload: int = 200 * 10**6  # bytes of a file
    unpacked: int = 10**9  # bytes of a file after decompression
    rows: int = 32 * 10**6  # bytes of rows to be scored at once
    memory: int = 4 * 10**9  # bytes that a job may hold
    seconds: float = 900  # that a job may run
    queue: int = 20  # jobs that wait
    scoring: int = 4  # requests that are scored or wait for it: with 6, p99 at twice the load was 11 times the usual
    connections: int = 256
    timeout: float = 20  # seconds without a complete request, or without progress of a body

    @classmethod
    def parse(cls, texts: Sequence[str]) -> Limits:
        """The limits of `--limit NAME=VALUE`; those not named keep their defaults."""
        names, values = [one.name for one in fields(cls)], dict[str, Any]()
        for text in texts:
            name, _, value = text.partition("=")
            if name not in names:
                hint = did_you_mean(name, names)
                raise AddmlError(f"--limit {text}: give NAME=VALUE; names are {', '.join(names)}.{hint}", USAGE)
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
    """Serve these models and take files until interrupted; prints the address, with the token unless it was given."""
    try:
        from addml.server.access import Server
        from addml.server.app import create_app
        from addml.server.models import Models
    except ImportError as error:
        remedy = "install them: pip install 'addml[web]'"
        raise AddmlError(f"addml serve needs Starlette and uvicorn; {remedy} ({error})") from None

    if token:
        check_token(token)
    models = Models(device, folders)
    listening = listen(host, port)
    own = token or secrets.token_urlsafe(32)
    root = f"/{root_path.strip('/')}".rstrip("/")
    announce = partial(_announce, listening, host, "..." if token else own)
    sys.setswitchinterval(SWITCH)
    with blas_threads(1):  # a row's bits are the same alone, in a file and here
        app = create_app(models, own, f"addml-{listening.getsockname()[1]}", limits, access_log)
        Server(app, limits, root, announce).run(sockets=[listening])


def check_token(token: str) -> None:
    """A token must be too long to be guessed, and fit into a header."""
    if len(token) < LEAST_TOKEN or not token.isascii() or not token.isprintable():
        remedy = f"give at least {LEAST_TOKEN} plain ones, or leave it out, and one is made up"
        raise AddmlError(f"--token: {len(token)} characters; {remedy}")


def _announce(listening: socket.socket, host: str, token: str) -> None:
    address, port = listening.getsockname()[:2]
    print(f"Inspector and REST at http://{f'[{host}]' if ':' in host else host}:{port}/?token={token}")
    if not ip_address(address).is_loopback:
        warning = f"Warning: others can reach {host}. Whoever has the token can use the models and upload files, and "
        print(warning + "nothing is encrypted: put a proxy with TLS before it.", file=sys.stderr)
    print("Press Ctrl+C to end.", flush=True)


def listen(host: str, port: int) -> socket.socket:
    """A socket at that address."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family)
        # asyncio sets TCP_NODELAY only where the socket says that it is TCP; else small answers wait 40 ms for an ACK.
        return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=listening.detach())
    except OSError as error:
        remedy = "give another --port, or 0 for any free one" if error.errno else "give another --host"
        raise AddmlError(f"{host}:{port}: cannot listen here ({error.strerror or error}); {remedy}.") from error
