"""Who may speak to the server: whoever knows its token, by a header or, in a browser, by a cookie."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

OPEN = ("/api/health",)  # says nothing but that the server is there
SAFE = ("GET", "HEAD", "OPTIONS")
LEAST_TOKEN = 16  # characters
SMALL = 10**6  # bytes that are read of a request that is answered before its end
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",  # the first address holds the token
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": PAGE_POLICY,
}


@dataclass(frozen=True)
class Access:
    """The token, and the name of the cookie that holds it: servers on other ports of a machine have their own."""

    token: str
    cookie: str

    def __post_init__(self) -> None:
        if len(self.token) < LEAST_TOKEN or not self.token.isascii() or not self.token.isprintable():
            raise ValueError(
                f"--token: {len(self.token)} characters; give at least {LEAST_TOKEN} plain ones, or leave it out, "
                "and one is made up"
            )

    def knows(self, said: str | None) -> bool:
        """Whether that is the token; comparing takes as long whatever is wrong with it."""
        return said is not None and hmac.compare_digest(said.encode(), self.token.encode())

    def allows(self, request: Request) -> bool:
        """Whether a request comes from somebody who knows the token, and not from another page in their browser."""
        kind, _, said = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return self.knows(said.strip())
        if not self.knows(request.cookies.get(self.cookie)):
            return False
        return request.method in SAFE or _own_origin(request)


def _own_origin(request: Request) -> bool:
    """Whether a browser says that one of our own pages asks; a page of another port has the same cookies."""
    origin = request.headers.get("origin")
    return origin is not None and origin.partition("://")[2] == request.headers.get("host")


class Guard:
    """Lets nobody in without the token, takes it from the first address into a cookie, and adds headers to all."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        """The app behind the guard."""
        self.app, self.access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        answer = self._answer(Request(scope))
        return await (answer or self.app)(scope, receive, _with_headers(send))

    def _answer(self, request: Request) -> Response | None:
        """What is said without asking the app."""
        path = request.scope["path"]  # as the routes see it; request.url is made of the Host header too
        if path in OPEN:
            return None
        if request.method == "GET" and self.access.knows(request.query_params.get("token")):
            here = "/" + path.lstrip("/\\")  # two slashes would lead to another server
            answer = RedirectResponse(here, 303)  # so that the token is in no history
            answer.set_cookie(self.access.cookie, self.access.token, httponly=True, samesite="strict")
            return answer
        if self.access.allows(request):
            return None
        words = (
            "the token is missing or not this server's: open the address that addml serve printed, or send the header "
            "Authorization: Bearer TOKEN"
        )
        return JSONResponse({"error": words}, 401, {"www-authenticate": "Bearer"})


def _with_headers(send: Send) -> Callable[..., Awaitable[None]]:
    async def sending(message: dict[str, object]) -> None:
        if message["type"] == "http.response.start":
            own = list(message.get("headers", []))  # type: ignore[call-overload]
            names = {name for name, _ in own}
            own += [(name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in names]
            message["headers"] = own
        await send(message)

    return sending


class DrainBody:
    """Reads the rest of a small body before an answer goes out, and closes the connection on a larger one.

    A client that still sends a small body gets the answer, and the connection stays open. Nothing larger is read
    from a client that is refused.
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
