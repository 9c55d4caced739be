"""A real server in a separate process that serves the model of a small table."""

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

STOP_SECONDS = 20  # for a server to stop


@dataclass
class Server:
    """A running server with its URL, its token and its working folder."""

    process: subprocess.Popen[str]
    url: str
    token: str
    folder: Path

    @property
    def client(self) -> Client:
        return Client(self.url, self.token)

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any, Any]:
        """Status, headers and body of the response to a request without the token; a JSON body is parsed."""
        defaults = {} if body is None else {"content-type": "application/x-www-form-urlencoded"}  # as curl -d does
        connection = _Connection(self.url.removeprefix("http://"), timeout=60)  # reads a response that comes early
        connection.request(method, path, body, defaults | {key.replace("_", "-"): headers[key] for key in headers})
        with connection.getresponse() as response:
            text = response.read().decode()
        connection.close()
        is_json = response.headers.get("content-type", "").startswith("application/json")
        return response.status, response.headers, json.loads(text) if is_json and text else text


@contextmanager
def serving(
    folder: Path, *arguments: object, hangup: Any = signal.SIG_DFL, files: int | None = None, **variables: str
) -> Iterator[Server]:
    """Run `addml serve` at a free port with these environment variables; stop it and its jobs at the end.

    `hangup` is its handler of SIGHUP, so that tests under nohup behave alike. `files` limits its open files.
    """

    def set_up() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, hangup)
        if files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

    process = subprocess.Popen(
        command("serve", *arguments, "--port", 0),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables},
        preexec_fn=set_up,
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
            _stop(process)


def _stop(process: subprocess.Popen[str]) -> None:
    """Terminate the server, then kill whatever is left of it and its jobs."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
    with suppress(ProcessLookupError):  # nothing is left
        os.killpg(process.pid, signal.SIGKILL)


def stop(server: Server) -> str:
    """Terminate the server and return its standard error."""
    server.process.terminate()
    return server.process.communicate(timeout=60)[1]


def connected(server):
    host, _, port = server.url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def fetch(server, method, path, body=None, **headers):
    """The response to a request with the token."""
    return server.ask(method, path, body, authorization=f"Bearer {server.token}", **headers)


def finished(server, job):
    """Wait until the job ends and return it."""
    while (job := fetch(server, "GET", f"/api/v1/jobs/{job['id']}")[2])["state"] in ("waiting", "running"):
        time.sleep(0.1)
    return job


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of the model `small`, in the folder of small.csv."""
    folder = tmp_path_factory.mktemp("web")
    write_small(folder / "small.csv")
    run_addml(folder, "fit", "small.csv", *QUICK).succeeded()
    with serving(folder, "small.model") as running:
        yield running
        assert "Traceback" not in stop(running)
