"""Access control: the token, limits on connections, and the uvicorn server that enforces them.

`Guard` checks the token of every request. `Connection` limits what clients without a token can occupy: it closes
connections whose request or body makes no progress, and at the connection limit it drops the longest idle one.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import Any

import uvicorn
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from addml.server import Limits, error_json

OPEN = ("/api/v1/health", "/api/v1/ready")  # need no token
DRAIN_BYTES = 10**6  # read from the body of a refused request, to keep its connection usable
HEADERS = {
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",  # the first URL contains the token
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "frame-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}
NO_TOKEN = (
    "the token is missing or not this server's: open the address that addml serve printed, or send the header "
    "Authorization: Bearer TOKEN"
)
TRUSTED = "addml.trusted"  # set in the scope of a request with the token


class Guard:
    """Middleware that requires the token, moves it from the first URL into a cookie, and adds security headers.

    If the app answers before it has read the body, a small body is read to its end so that the connection stays usable;
    with a larger one the connection is closed.
    """

    def __init__(self, app: ASGIApp, token: str, cookie: str, note: Callable[[Scope, int, float], None]) -> None:
        """`note` is called with the scope, the status and the seconds of every request."""
        self.app, self.token, self.cookie, self.note = app, token, cookie, note

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        began, status, is_read = time.perf_counter(), 499, False  # 499: the client disconnected

        async def receiving() -> Message:
            nonlocal is_read
            message = await receive()
            is_read = not message.get("more_body", False)
            return message

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status, left = message["status"], DRAIN_BYTES
                while not is_read and left > 0:
                    left -= len((await receiving()).get("body", b""))
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if not is_read:
                    headers["connection"] = "close"
            await send(message)

        try:
            return await (self._answer(Request(scope)) or self.app)(scope, receiving, sending)
        finally:
            self.note(scope, status, time.perf_counter() - began)

    def _answer(self, request: Request) -> Response | None:
        """A redirect or a refusal; None if the app may answer the request."""
        root = request.scope.get("root_path", "")
        path = request.scope["path"].removeprefix(root)  # request.url depends on the Host header
        if path in OPEN:
            return None
        if request.method == "GET" and self._is_token(request.query_params.get("token", "")):
            # The redirect keeps the token out of the history. lstrip: a leading // would lead to another server.
            answer = RedirectResponse(f"{root}/" + path.lstrip("/\\"), 303)
            answer.set_cookie(self.cookie, self.token, path=root or "/", httponly=True, samesite="strict")
            return answer
        if self._is_allowed(request):
            request.scope[TRUSTED] = True
            return None
        body, kind = error_json(401, NO_TOKEN), "application/json"
        if "text/html" in request.headers.get("accept", ""):
            body, kind = f"<!doctype html><title>ADDML</title><p>{NO_TOKEN}.</p>".encode(), "text/html"
        return Response(body, 401, {"www-authenticate": "Bearer"}, kind)

    def _is_allowed(self, request: Request) -> bool:
        """Whether the request has the token. With the cookie, requests that change anything need our Origin header."""
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return self._is_token(token.strip())
        origin = request.headers.get("origin", "")
        is_own = bool(origin) and origin.partition("://")[2] == request.headers.get("host")
        is_safe = is_own or request.method in ("GET", "HEAD", "OPTIONS")  # pages on other ports send the cookie too
        return is_safe and self._is_token(request.cookies.get(self.cookie, ""))

    def _is_token(self, token: str) -> bool:
        """Compare with the token in constant time."""
        return hmac.compare_digest(token.encode(), self.token.encode())


MIN_RATE = 10_000  # bytes per second of a body, after the timeout
RESERVED_FILES = 96  # file descriptors for the server itself and for accepted connections not yet counted
ACCEPT_BACKLOG = 16  # connections that asyncio accepts at a time; each needs a file descriptor
LISTEN_BACKLOG = 1024  # connections that the system queues until they are accepted
LOGGED = Counter[tuple[int, str]]()  # (minute, message): count


class Connection(H11Protocol):
    """An HTTP connection that is closed when its client is too slow."""

    most, timeout = 256, 20.0  # overridden by `Server`
    began = heard = 0.0  # when waiting for the current request began, and when the last bytes arrived
    received = 0  # bytes of the current request
    stuck: float | None = None  # since when the client has not read the answer

    def connection_made(self, transport: Any) -> None:
        """Accept the connection. At the limit, drop the longest idle one, or refuse the new one if none is idle."""
        self.began = self.heard = time.monotonic()
        if len(self.connections) >= self.most:
            waiting = [one for one in self.connections if isinstance(one, Connection) and one.is_waiting]
            if not waiting:
                transport.set_protocol(asyncio.Protocol())  # ignores further data
                transport.write(_closing(503, f"{self.most} connections are open; try again later"))
                transport.close()
                return
            oldest = min(waiting, key=lambda one: one.began)
            self.connections.discard(oldest)
            oldest.transport.abort()
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self.heard = time.monotonic()
        if not self.received:
            self.began = self.heard
        self.received += len(data)
        super().data_received(data)

    def on_response_complete(self) -> None:
        self.began, self.received = time.monotonic(), 0
        super().on_response_complete()

    def pause_writing(self) -> None:
        self.stuck = time.monotonic()
        super().pause_writing()

    def resume_writing(self) -> None:
        self.stuck = None
        super().resume_writing()

    @property
    def is_waiting(self) -> bool:
        """Whether it may be dropped: between requests, or receiving a body without the token."""
        cycle = self.cycle
        return cycle is None or cycle.response_complete or (cycle.more_body and not cycle.scope.get(TRUSTED))

    def close_if_slow(self, now: float) -> None:
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            if now - self.began > self.timeout:
                self.transport.close()
        elif self.stuck is not None:
            if now - self.stuck > self.timeout:
                self.transport.abort()
        elif cycle.more_body and not self.flow.read_paused:
            slow = now - self.began > self.timeout + self.received / MIN_RATE
            if now - self.heard > self.timeout or slow:
                if not cycle.response_started:
                    self.transport.write(_closing(408, "the body did not arrive in time; send it again"))
                self.transport.close()


def _closing(status: int, words: str) -> bytes:
    """A complete HTTP answer for a connection that is then closed."""
    headers = "content-type: application/json\r\nconnection: close\r\nretry-after: 1"
    return f"HTTP/1.1 {status} -\r\n{headers}\r\n\r\n".encode() + error_json(status, words)


def is_rare(record: logging.LogRecord) -> bool:
    """Filter out a message after five times in one minute: a flood would fill the disk."""
    if len(LOGGED) > 1000:
        LOGGED.clear()
    message = int(time.monotonic() / 60), str(record.msg)[:200]
    LOGGED[message] += 1
    return LOGGED[message] <= 5


class Server(uvicorn.Server):
    """A uvicorn server with the limits above that also stops cleanly on SIGHUP."""

    def __init__(self, app: ASGIApp, limits: Limits, root_path: str, when_ready: Callable[[], None]) -> None:
        most = limits.connections
        with suppress(ImportError):  # Windows, where the system has no limit
            import resource

            files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            if files != resource.RLIM_INFINITY:
                most = max(8, min(most, files - RESERVED_FILES))
        config = uvicorn.Config(
            app,
            http=type("Bounded", (Connection,), {"most": most, "timeout": limits.timeout}),
            ws="none",
            backlog=ACCEPT_BACKLOG,
            root_path=root_path,
            log_level="critical",  # the app logs its errors itself
            access_log=False,
            server_header=False,
            timeout_keep_alive=int(limits.timeout),
            timeout_graceful_shutdown=1,  # seconds
        )
        super().__init__(config)
        self._when_ready = when_ready
        for name in ("addml", "asyncio"):
            logging.getLogger(name).addFilter(is_rare)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for one in sockets or ():
            one.listen(LISTEN_BACKLOG)
        self._when_ready()

    async def on_tick(self, counter: int) -> bool:
        """Also close slow connections, twice a second."""
        if counter % 5 == 0:
            for one in list(self.server_state.connections):
                if isinstance(one, Connection):
                    one.close_if_slow(time.monotonic())
        return await super().on_tick(counter)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Also capture SIGHUP, unless it is ignored (nohup)."""
        hangup = getattr(signal, "SIGHUP", signal.SIGTERM)  # Windows has no SIGHUP; uvicorn captures SIGTERM
        with super().capture_signals(), ExitStack() as after:
            if callable(before := signal.getsignal(hangup)):
                signal.signal(hangup, self.handle_exit)
                after.callback(signal.signal, hangup, before)
            yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop; ignore a second signal, which would make uvicorn exit before jobs and files are removed."""
        if not self.should_exit:
            super().handle_exit(sig, frame)
