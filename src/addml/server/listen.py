"""A server at one address, until it is interrupted."""

from __future__ import annotations

import secrets
import socket
import sys
from collections.abc import Sequence
from ipaddress import ip_address

from addml.compute import blas_threads
from addml.errors import UserError
from addml.pipeline.options import Computing

MISSING = "addml serve needs Starlette and uvicorn; install them: pip install 'addml[web]'"


def serve(models: Sequence[str], host: str, port: int, token: str | None, limit: int, computing: Computing) -> None:
    """Offer these models and take files, until interrupted; says where, with the token."""
    try:
        from addml.server.access import Access
        from addml.server.app import Interruptible, create_app
    except ImportError as error:
        raise UserError(f"{MISSING} ({error})") from None
    from addml.server.models import Shelf

    shelf = Shelf.of(models, computing)
    listening = _listen(host, port)
    port = listening.getsockname()[1]
    access = Access(token or secrets.token_urlsafe(32), f"addml-{port}")

    def say() -> None:
        _say(host, port, access.token, made_up=token is None)

    app = create_app(shelf, access, limit)
    with blas_threads(1):  # a row's bits are the same alone, in a file and here
        Interruptible(app, say).run(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    """A socket at that address, before anything is said of it."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family)
        # Only of sockets that say they are TCP does asyncio send what is small at once, not after the next ACK (40 ms).
        return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=listening.detach())
    except OSError as error:
        remedy = "give another one by --port, or 0 for any that is free" if error.errno else "give another --host"
        raise UserError(f"{host}:{port}: cannot be listened at ({error.strerror or error}); {remedy}.") from error


def _say(host: str, port: int, token: str, *, made_up: bool) -> None:
    """Where the inspector is; a token that the user gave is not printed again."""
    where = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
    print(f"Inspector and REST at {where}" + (f"?token={token}" if made_up else "?token=..."))
    if not is_loopback(host):
        print(
            f"Warning: others can reach {host}. Whoever has the token can use the models and hand in files, and "
            "nothing is encrypted: put a proxy with TLS before it.",
            file=sys.stderr,
        )
    print("Press Ctrl+C to end.", flush=True)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches that address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
