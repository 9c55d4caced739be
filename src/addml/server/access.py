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

PUBLIC_PATHS = ("/api/v1/health", "/api/v1/ready")  # need no token
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
    "the token is missing or not this server's: open the URL that addml serve printed, or send the header "
    "Authorization: Bearer TOKEN"
)
TRUSTED = "addml.trusted"  # set in the scope of a request with the token


class Guard:
    """Middleware that requires the token, moves it from the first URL into a cookie, and adds security headers.

    If the app answers before it has read the body, a small body is read to its end so that the connection stays usable;
    with a larger one the connection is closed.
    """

    def __init__(self, app: ASGIApp, token: str, cookie: str, record: Callable[[Scope, int, float], None]) -> None:
        """`record` is called with the scope, the status and the seconds of every request."""
        self.app, self.token, self.cookie, self.record = app, token, cookie, record

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        started = time.perf_counter()
        status, body_read = 499, False  # 499: the client disconnected

        async def receive_body() -> Message:
            nonlocal body_read
            message = await receive()
            body_read = not message.get("more_body", False)
            return message

        async def send_response(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status, remaining = message["status"], DRAIN_BYTES
                while not body_read and remaining > 0:
                    remaining -= len((await receive_body()).get("body", b""))
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if not body_read:
                    headers["connection"] = "close"
            await send(message)

        try:
            return await (self._intercept(Request(scope)) or self.app)(scope, receive_body, send_response)
        finally:
            self.record(scope, status, time.perf_counter() - started)

    def _intercept(self, request: Request) -> Response | None:
        root = request.scope.get("root_path", "")
        path = request.scope["path"].removeprefix(root)  # request.url depends on the Host header
        if path in PUBLIC_PATHS:
            return None
        if request.method == "GET" and self._is_token(request.query_params.get("token", "")):
            # The redirect keeps the token out of the history. lstrip: a leading // would lead to another server.
            redirect = RedirectResponse(f"{root}/" + path.lstrip("/\\"), 303)
            redirect.set_cookie(self.cookie, self.token, path=root or "/", httponly=True, samesite="strict")
            return redirect
        if self._is_allowed(request):
            request.scope[TRUSTED] = True
            return None
        body, media_type = error_json(401, NO_TOKEN), "application/json"
        if "text/html" in request.headers.get("accept", ""):
            body, media_type = f"<!doctype html><title>ADDML</title><p>{NO_TOKEN}.</p>".encode(), "text/html"
        return Response(body, 401, {"www-authenticate": "Bearer"}, media_type)

    def _is_allowed(self, request: Request) -> bool:
        """Whether the request has the token. With the cookie, requests that change anything need our Origin header."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self._is_token(token.strip())
        origin = request.headers.get("origin", "")
        same_origin = bool(origin) and origin.partition("://")[2] == request.headers.get("host")
        is_safe = same_origin or request.method in (
            "GET",
            "HEAD",
            "OPTIONS",
        )  # pages on other ports send the cookie too
        return is_safe and self._is_token(request.cookies.get(self.cookie, ""))

    def _is_token(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self.token.encode())


MIN_RATE = 10_000  # bytes per second of a body, after the timeout
RESERVED_FILES = 96  # file descriptors for the server itself and for accepted connections not yet counted
ACCEPT_BACKLOG = 16  # connections that asyncio accepts at a time; each needs a file descriptor
LISTEN_BACKLOG = 1024  # connections that the system queues until they are accepted
MESSAGE_COUNTS = Counter[tuple[int, str]]()  # by minute and message


class Connection(H11Protocol):
    """An HTTP connection that is closed when its client is too slow."""

    max_connections, timeout = 256, 20.0  # overridden by `Server`
    waiting_since = last_received = 0.0  # start of the wait for the current request, and arrival of the last bytes
    received = 0  # bytes of the current request
    blocked_since: float | None = None  # since when the client has not read the response

    def connection_made(self, transport: Any) -> None:
        """Accept the connection. At the limit, drop the longest idle one, or refuse the new one if none is idle."""
        self.waiting_since = self.last_received = time.monotonic()
        if len(self.connections) >= self.max_connections:
            idle = [other for other in self.connections if isinstance(other, Connection) and other.is_idle]
            if not idle:
                transport.set_protocol(asyncio.Protocol())  # ignores further data
                transport.write(_final_response(503, f"{self.max_connections} connections are open; try again later"))
                transport.close()
                return
            oldest = min(idle, key=lambda other: other.waiting_since)
            self.connections.discard(oldest)
            oldest.transport.abort()
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self.last_received = time.monotonic()
        if not self.received:
            self.waiting_since = self.last_received
        self.received += len(data)
        super().data_received(data)

    def on_response_complete(self) -> None:
        self.waiting_since, self.received = time.monotonic(), 0
        super().on_response_complete()

    def pause_writing(self) -> None:
        self.blocked_since = time.monotonic()
        super().pause_writing()

    def resume_writing(self) -> None:
        self.blocked_since = None
        super().resume_writing()

    @property
    def is_idle(self) -> bool:
        """Whether the connection may be dropped: it is between requests, or receives a body without the token."""
        cycle = self.cycle
        return cycle is None or cycle.response_complete or (cycle.more_body and not cycle.scope.get(TRUSTED))

    def close_if_slow(self, now: float) -> None:
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            if now - self.waiting_since > self.timeout:
                self.transport.close()
        elif self.blocked_since is not None:
            if now - self.blocked_since > self.timeout:
                self.transport.abort()
        elif cycle.more_body and not self.flow.read_paused:
            is_slow = now - self.waiting_since > self.timeout + self.received / MIN_RATE
            if now - self.last_received > self.timeout or is_slow:
                if not cycle.response_started:
                    self.transport.write(_final_response(408, "the body did not arrive in time; send it again"))
                self.transport.close()


def _final_response(status: int, message: str) -> bytes:
    headers = "content-type: application/json\r\nconnection: close\r\nretry-after: 1"
    return f"HTTP/1.1 {status} -\r\n{headers}\r\n\r\n".encode() + error_json(status, message)


def is_rare(record: logging.LogRecord) -> bool:
    """Let each message through five times a minute: a flood would fill the disk."""
    if len(MESSAGE_COUNTS) > 1000:
        MESSAGE_COUNTS.clear()
    key = int(time.monotonic() / 60), str(record.msg)[:200]
    MESSAGE_COUNTS[key] += 1
    return MESSAGE_COUNTS[key] <= 5


class Server(uvicorn.Server):
    """A uvicorn server that limits connections and also stops cleanly on SIGHUP."""

    def __init__(self, app: ASGIApp, limits: Limits, root_path: str, when_ready: Callable[[], None]) -> None:
        max_connections = limits.connections
        with suppress(ImportError):  # Windows, where the system has no limit
            import resource

            max_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            if max_files != resource.RLIM_INFINITY:
                max_connections = max(8, min(max_connections, max_files - RESERVED_FILES))
        config = uvicorn.Config(
            app,
            http=type("Limited", (Connection,), {"max_connections": max_connections, "timeout": limits.timeout}),
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
        for server_socket in sockets or ():
            server_socket.listen(LISTEN_BACKLOG)
        self._when_ready()

    async def on_tick(self, counter: int) -> bool:
        """Also close slow connections, twice a second."""
        if counter % 5 == 0:
            for connection in list(self.server_state.connections):
                if isinstance(connection, Connection):
                    connection.close_if_slow(time.monotonic())
        return await super().on_tick(counter)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Also capture SIGHUP, unless it is ignored (nohup)."""
        hangup = getattr(signal, "SIGHUP", signal.SIGTERM)  # Windows has no SIGHUP; uvicorn captures SIGTERM
        previous = signal.getsignal(hangup)
        with super().capture_signals(), ExitStack() as cleanup:
            if callable(previous):
                signal.signal(hangup, self.handle_exit)
                cleanup.callback(signal.signal, hangup, previous)
            yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop; ignore a second signal, which would make uvicorn exit before jobs and files are removed."""
        if not self.should_exit:
            super().handle_exit(sig, frame)
