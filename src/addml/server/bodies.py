"""What a request brings along, as long as it is not too large."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SMALL = 10**6  # bytes that are read of a request that is answered before its end


class RefusedError(ValueError):
    """What a client can mend, with the status that says so."""

    def __init__(self, words: str, status: int = 422) -> None:
        """The words, and the status of the answer."""
        super().__init__(words)
        self.status = status


async def to_file(request: Request, path: Path, most: int) -> int:
    """Write the body to a file piece by piece; its size in bytes."""
    size = 0
    with path.open("wb") as file:
        async for piece in _pieces(request, most, "allow more by --limit"):
            file.write(piece)
            size += len(piece)
    if not size:
        raise RefusedError("the request is empty; send the bytes of a file as its body")
    return size


async def as_json(request: Request, most: int) -> Any:
    """The body as JSON."""
    pieces = [piece async for piece in _pieces(request, most, "send fewer rows at a time")]
    try:
        return json.loads(b"".join(pieces))
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"the body is not JSON ({error}); send {{'rows': [...]}}".replace("'", '"')) from None


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


class HeardOut:
    """Reads the rest of a small body before an answer goes out, and closes the connection on a larger one.

    Whoever still sends a small body hears the answer, and the connection goes on. Nothing larger is read from a
    client that is refused.
    """

    def __init__(self, app: ASGIApp) -> None:
        """The app whose answers wait."""
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        is_over = False

        async def receiving() -> Message:
            nonlocal is_over
            message = await receive()
            is_over = not message.get("more_body", False)
            return message

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                left = SMALL
                while not is_over and left > 0:
                    left -= len((await receiving()).get("body", b""))
                if not is_over:
                    message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
            await send(message)

        return await self.app(scope, receiving, sending)
