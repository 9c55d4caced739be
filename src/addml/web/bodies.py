"""What a request brings along, as long as it is not too large."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send


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
        async for piece in request.stream():
            size += len(piece)
            if size > most:
                raise _too_large(most, "allow more by --limit")
            file.write(piece)
    if not size:
        raise RefusedError("the request is empty; send the bytes of a file as its body")
    return size


async def as_json(request: Request, most: int) -> Any:
    """The body as JSON."""
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > most:
            raise _too_large(most, "send fewer rows at a time")
        pieces.append(piece)
    try:
        return json.loads(b"".join(pieces))
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"the body is not JSON ({error}); send {{'rows': [...]}}".replace("'", '"')) from None


def _too_large(most: int, remedy: str) -> RefusedError:
    return RefusedError(f"more than {most / 1e6:,.0f} MB; {remedy}", 413)


class HeardOut:
    """Reads what is left of a body, up to a size, before an answer goes out: whoever still sends does not hear it."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        """The app whose answers wait."""
        self.app, self.most = app, most

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
            left = self.most
            while message["type"] == "http.response.start" and not is_over and left > 0:
                left -= len((await receiving()).get("body", b""))
            await send(message)

        return await self.app(scope, receiving, sending)
