"""REST and the inspector: one small app over saved models and uploaded files.

Starlette and uvicorn (extra `web`) are imported here and nowhere else. Every page has a JSON twin.
"""

from __future__ import annotations

import secrets
import socket
import sys
from collections.abc import Sequence
from ipaddress import ip_address

from addml.compute import blas_threads
from addml.errors import AddmlError

MISSING = "addml serve needs Starlette and uvicorn; install them: pip install 'addml[web]'"


def serve(folders: Sequence[str], host: str, port: int, token: str | None, limit: int, device: str) -> None:
    """Serve these models and take uploads of up to `limit` bytes, until interrupted; prints where, with the token."""
    try:
        from addml.server.access import Access
        from addml.server.app import Server, create_app
    except ImportError as error:
        raise AddmlError(f"{MISSING} ({error})") from None
    from addml.server.models import Models

    models = Models.load(folders, device)
    listening = _listen(host, port)
    port = listening.getsockname()[1]
    access = Access(token or secrets.token_urlsafe(32), f"addml-{port}")

    def announce() -> None:
        _announce(host, port, access.token, generated=token is None)

    app = create_app(models, access, limit)
    with blas_threads(1):  # a row's bits are the same alone, in a file and here
        Server(app, announce).run(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    """A socket at that address."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family)
        # Only of sockets that say they are TCP does asyncio send what is small at once, not after the next ACK (40 ms).
        return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=listening.detach())
    except OSError as error:
        remedy = "give another --port, or 0 for any free one" if error.errno else "give another --host"
        raise AddmlError(f"{host}:{port}: cannot listen here ({error.strerror or error}); {remedy}.") from error


def _announce(host: str, port: int, token: str, *, generated: bool) -> None:
    """Print where the inspector is; a token that the user gave is not printed again."""
    where = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
    print(f"Inspector and REST at {where}" + (f"?token={token}" if generated else "?token=..."))
    if not is_loopback(host):
        print(
            f"Warning: others can reach {host}. Whoever has the token can use the models and upload files, and "
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
