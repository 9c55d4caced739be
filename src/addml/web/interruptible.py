"""A server that ends when it is told to, whatever its clients are doing."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

PATIENCE = 1  # seconds for answers that are under way
GONE = [number for number in signal.Signals if number.name == "SIGHUP"]  # which Windows does not have


class Interruptible(uvicorn.Server):
    """Ends at an interrupt, at a polite kill and when the terminal goes, and leaves nothing behind."""

    def __init__(self, app: ASGIApp, when_ready: Callable[[], None]) -> None:
        """The app, and what is done when it answers and heeds signals."""
        super().__init__(
            uvicorn.Config(
                app,
                log_level="critical",  # what fails is said by the app; what is cut off at the end is no failure
                access_log=False,
                server_header=False,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=PATIENCE,
            )
        )
        self._when_ready = when_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        self._when_ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Those that uvicorn knows, and that the terminal goes, unless the server is to outlive it (nohup)."""
        with super().capture_signals():
            heeded = [number for number in GONE if callable(signal.getsignal(number))]
            before = [signal.signal(number, self.handle_exit) for number in heeded]
            try:
                yield
            finally:
                for number, handler in zip(heeded, before, strict=True):
                    signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End; a second signal changes nothing, since jobs and files would be left behind."""
        if not self.should_exit:
            super().handle_exit(sig, frame)
