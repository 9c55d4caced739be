"""A real server in a process of its own, over a model of a small table."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from addml.client import Client, _Connection
from tests.cli.running import QUICK, command, run_addml, write_small

PATIENCE = 20  # seconds for a server to end


@dataclass
class Server:
    """Where it is, and what it must be told."""

    process: subprocess.Popen[str]
    url: str
    token: str
    folder: Path

    @property
    def client(self) -> Client:
        return Client(self.url, self.token)

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any, Any]:
        """The status, the headers and the body of an answer, as JSON where it is; without the token."""
        unsaid = {} if body is None else {"content-type": "application/x-www-form-urlencoded"}  # as curl -d does
        connection = _Connection(self.url.removeprefix("http://"), timeout=60)  # reads an answer that comes early
        connection.request(method, path, body, unsaid | {key.replace("_", "-"): headers[key] for key in headers})
        with connection.getresponse() as answer:
            text = answer.read().decode()
        connection.close()
        is_json = answer.headers.get("content-type", "").startswith("application/json")
        return answer.status, answer.headers, json.loads(text) if is_json and text else text


@contextmanager
def serving(
    folder: Path, *arguments: object, hangup: Any = signal.SIG_DFL, files: int | None = None, **variables: str
) -> Iterator[Server]:
    """`addml serve` at a free port, with these variables; it is gone at the end, with all that it has begun.

    What it does when its terminal goes is up to `hangup`, not to whatever ran the tests, which may be nohup. It may
    have so many open `files`.
    """

    def heed() -> None:
        for number, way in ((signal.SIGINT, signal.SIG_DFL), (signal.SIGTERM, signal.SIG_DFL), (signal.SIGHUP, hangup)):
            signal.signal(number, way)
        if files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

    process = subprocess.Popen(
        command("serve", *arguments, "--port", 0),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables},
        preexec_fn=heed,
        start_new_session=True,
    )
    with process:
        try:
            line = process.stdout.readline()
            if "?token=" not in line:
                raise AssertionError((line, process.communicate()))
            url, _, token = line.split()[-1].partition("/?token=")
            yield Server(process, url, token, folder)
        finally:
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """As a polite kill does, and then by force, its jobs too."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(PATIENCE)
    with suppress(ProcessLookupError):  # nothing is left
        os.killpg(process.pid, signal.SIGKILL)


def ended(server: Server) -> str:
    """What it said on standard error, once it has ended as after a polite kill."""
    server.process.terminate()
    return server.process.communicate(timeout=60)[1]


def connected(server):
    host, _, port = server.url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def asked(server, method, path, body=None, **headers):
    return server.ask(method, path, body, authorization=f"Bearer {server.token}", **headers)


def over(server, job):
    """A job when it has ended."""
    while (now := asked(server, "GET", f"/api/v1/jobs/{job['id']}")[2])["state"] in ("waiting", "running"):
        time.sleep(0.1)
    return now


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that offers the model `small`, beside small.csv."""
    folder = tmp_path_factory.mktemp("web")
    write_small(folder / "small.csv")
    run_addml(folder, "fit", "small.csv", *QUICK).succeeded()
    with serving(folder, "small.model") as one:
        yield one
        assert "Traceback" not in ended(one)
