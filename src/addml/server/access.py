"""Who may connect and ask, how long they may take, and a uvicorn server that keeps to it.

The token is checked by `Guard`, for every path. `Connection` bounds what a client without a token can hold: a
connection without a complete request, or a body that makes no progress, is closed after a while, and at the limit the
one that has waited longest makes room for a new one.
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

OPEN = ("/api/v1/health", "/api/v1/ready")  # say nothing but that the server is there
SMALL = 10**6  # bytes that are read of a request that is answered before its end
HEADERS = {
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",  # the first address holds the token
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "frame-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}
NO_TOKEN = (
    "the token is missing or not this server's: open the address that addml serve printed, or send the header "
    "Authorization: Bearer TOKEN"
)
TRUSTED = "addml.trusted"  # in the scope of a request that had the token


class Guard:
    """Lets nobody in without the token, takes it from the first address into a cookie, and adds headers to all.

    A small body is read to its end before the answer goes out, so that the connection stays usable; on a larger one
    the connection is closed.
    """

    def __init__(self, app: ASGIApp, token: str, cookie: str, note: Callable[[Scope, int, float], None]) -> None:
        """`note` is told of every request, the status of its answer, and its seconds."""
        self.app, self.token, self.cookie, self.note = app, token, cookie, note

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        began, status, is_read = time.perf_counter(), 499, False  # 499: the client went away

        async def receiving() -> Message:
            nonlocal is_read
            message = await receive()
            is_read = not message.get("more_body", False)
            return message

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status, left = message["status"], SMALL
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
        """The answer to a request that the app must not see, if it is one."""
        root = request.scope.get("root_path", "")
        path = request.scope["path"].removeprefix(root)  # request.url is made of the Host header too
        if path in OPEN:
            return None
        if request.method == "GET" and self._knows(request.query_params.get("token", "")):
            # Without the token, which is then in no history; two slashes at the start would lead to another server.
            answer = RedirectResponse(f"{root}/" + path.lstrip("/\\"), 303)
            answer.set_cookie(self.cookie, self.token, path=root or "/", httponly=True, samesite="strict")
            return answer
        kind, _, said = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            is_allowed = self._knows(said.strip())
        else:  # what changes something must come from a page of this server: other ports have the same cookies
            origin = request.headers.get("origin", "")
            is_own = bool(origin) and origin.partition("://")[2] == request.headers.get("host")
            is_safe = is_own or request.method in ("GET", "HEAD", "OPTIONS")
            is_allowed = is_safe and self._knows(request.cookies.get(self.cookie, ""))
        if is_allowed:
            request.scope[TRUSTED] = True
            return None
        body, kind = error_json(401, NO_TOKEN), "application/json"
        if "text/html" in request.headers.get("accept", ""):
            body, kind = f"<!doctype html><title>ADDML</title><p>{NO_TOKEN}.</p>".encode(), "text/html"
        return Response(body, 401, {"www-authenticate": "Bearer"}, kind)

    def _knows(self, said: str) -> bool:
        """Whether that is the token; comparing takes as long whatever is wrong with it."""
        return hmac.compare_digest(said.encode(), self.token.encode())


# Connections ------------------------------------------------------------------------------------------------

LEAST_RATE = 10_000  # bytes a second of a body, after the timeout
RESERVED_FILES = 96  # that the server opens itself, and connections that were accepted and not yet looked at
ACCEPTED_AT_ONCE = 16  # asyncio accepts so many before it looks at one; each needs a file
WAITING_IN_SYSTEM = 1024  # connections that the system keeps until they are accepted
LOGGED = Counter[tuple[int, str]]()  # messages by their minute


class Connection(H11Protocol):
    """A connection that is given up when its client keeps the server waiting."""

    most, timeout = 256, 20.0  # `Server` sets them
    began = heard = 0.0  # when the wait for a request or for the rest of it began, and when bytes came last
    received = 0  # bytes of the present request
    stuck: float | None = None  # since when the client reads nothing of an answer

    def connection_made(self, transport: Any) -> None:
        """Take it, in place of one that only waits where there are too many, or refuse it."""
        self.began = self.heard = time.monotonic()
        if len(self.connections) >= self.most:
            waiting = [one for one in self.connections if isinstance(one, Connection) and one.is_waiting]
            if not waiting:
                transport.set_protocol(asyncio.Protocol())  # which ignores what still comes
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
        """Whether it serves nobody who had the token: between requests, or a refused body comes in."""
        cycle = self.cycle
        return cycle is None or cycle.response_complete or (cycle.more_body and not cycle.scope.get(TRUSTED))

    def give_up(self, now: float) -> None:
        """Close it if the client has taken too long."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            if now - self.began > self.timeout:
                self.transport.close()
        elif self.stuck is not None:
            if now - self.stuck > self.timeout:
                self.transport.abort()
        elif cycle.more_body and not self.flow.read_paused:
            slow = now - self.began > self.timeout + self.received / LEAST_RATE
            if now - self.heard > self.timeout or slow:
                if not cycle.response_started:
                    self.transport.write(_closing(408, "the rest of the body did not come in time; send it again"))
                self.transport.close()


def _closing(status: int, words: str) -> bytes:
    """A whole answer, after which the connection is closed."""
    headers = "content-type: application/json\r\nconnection: close\r\nretry-after: 1"
    return f"HTTP/1.1 {status} -\r\n{headers}\r\n\r\n".encode() + error_json(status, words)


# The server -------------------------------------------------------------------------------------------------


def is_rare(record: logging.LogRecord) -> bool:
    """Whether a message came at most five times in this minute; a flood of the same one would fill the disk."""
    if len(LOGGED) > 1000:
        LOGGED.clear()
    message = int(time.monotonic() / 60), str(record.msg)[:200]
    LOGGED[message] += 1
    return LOGGED[message] <= 5


class Server(uvicorn.Server):
    """Ends at an interrupt, at a polite kill and when the terminal goes, and leaves nothing behind."""

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
            backlog=ACCEPTED_AT_ONCE,
            root_path=root_path,
            log_level="critical",  # the app says what fails; what is cut off at the end is no failure
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
            one.listen(WAITING_IN_SYSTEM)
        self._when_ready()

    async def on_tick(self, counter: int) -> bool:
        """Also give up slow clients, twice a second."""
        if counter % 5 == 0:
            for one in list(self.server_state.connections):
                if isinstance(one, Connection):
                    one.give_up(time.monotonic())
        return await super().on_tick(counter)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Those that uvicorn knows, and that the terminal goes, unless the server is to outlive it (nohup)."""
        hangup = getattr(signal, "SIGHUP", signal.SIGTERM)  # Windows has no SIGHUP; SIGTERM is captured already
        with super().capture_signals(), ExitStack() as after:
            if callable(before := signal.getsignal(hangup)):
                signal.signal(hangup, self.handle_exit)
                after.callback(signal.signal, hangup, before)
            yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End; a second signal changes nothing, since jobs and files would be left behind."""
        if not self.should_exit:
            super().handle_exit(sig, frame)
