"""The command itself: where it listens, and how it ends."""

import asyncio
import os
import signal
import socket
from pathlib import Path

import pytest

from addml.errors import AddmlError
from addml.server import listen
from tests.cli.running import QUICK, run_addml, spawn_addml, write_small
from tests.server import conftest
from tests.server.conftest import serving, stop


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_ends_it_and_leaves_nothing(tmp_path, number, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    write_small(tmp_path / "small.csv", rows=20_000)
    with serving(tmp_path) as one:
        body, path = (tmp_path / "small.csv").read_bytes(), "/api/v1/jobs?name=small.csv&members=50&epochs=50"
        _, _, job = one.ask("POST", path, body, authorization=f"Bearer {one.token}")
        while one.ask("GET", f"/api/v1/jobs/{job['id']}", authorization=f"Bearer {one.token}")[2]["state"] == "waiting":
            pass
        assert list((tmp_path / "tmp").iterdir())
        with socket.create_connection(("127.0.0.1", int(one.url.rpartition(":")[2]))) as stalled:
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {one.token}\r\n"
            stalled.sendall(f"{head}Content-Length: 1000\r\n\r\na,b\n".encode())
            one.process.send_signal(number)
            one.process.send_signal(number)  # which hurries nothing
            _, err = one.process.communicate(timeout=20)
    assert err == ""
    assert one.process.returncode == 128 + number
    assert list((tmp_path / "tmp").iterdir()) == []


def test_it_outlives_its_terminal_under_nohup(tmp_path):
    with serving(tmp_path, hangup=signal.SIG_IGN) as one:
        one.process.send_signal(signal.SIGHUP)
        assert one.ask("GET", "/api/v1/health")[0] == 200
        one.process.send_signal(signal.SIGTERM)
        assert one.process.communicate(timeout=60)[1] == ""
    assert one.process.returncode == 128 + signal.SIGTERM  # not of SIGHUP, which came first


def test_no_test_leaves_a_server_behind(tmp_path, monkeypatch):
    """Not even one that heeds nothing."""
    monkeypatch.setattr(conftest, "STOP_SECONDS", 0.1)
    with serving(tmp_path) as one:
        one.process.send_signal(signal.SIGSTOP)
    assert one.process.returncode == -signal.SIGKILL


def test_it_listens_to_this_machine_alone(tmp_path):
    with serving(tmp_path) as one:
        assert one.url.startswith("http://127.0.0.1:")
        port = int(one.url.rpartition(":")[2])
        addresses = {found[4][0] for found in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
        for address in addresses - {"127.0.0.1", "127.0.1.1"}:
            with pytest.raises(OSError, match=r"."):
                socket.create_connection((address, port), timeout=2)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_answers_go_out_at_once(host):
    """Nagle's algorithm would keep the second part of an answer until the client has confirmed the first."""
    try:
        listening = listen(host, 0)
    except AddmlError:
        pytest.skip(f"this machine has no {host}")

    async def accepted() -> int:
        option = asyncio.get_running_loop().create_future()

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            own = writer.get_extra_info("socket")
            option.set_result(own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        async with await asyncio.start_server(connected, sock=listening):
            with socket.create_connection(listening.getsockname()[:2]):
                return await option

    assert asyncio.run(accepted()) != 0


@pytest.mark.slow
def test_others_are_let_in_only_when_told_and_that_is_said(tmp_path):
    with serving(tmp_path, "--host", "0.0.0.0") as one:
        assert "other machines can reach 0.0.0.0" in stop(one)


@pytest.mark.slow
def test_a_token_of_ones_own_is_not_printed(tmp_path):
    for arguments, variables in ((("--token", "s" * 20), {}), ((), {"ADDML_TOKEN": "s" * 20})):
        with serving(tmp_path, *arguments, **variables) as one:
            assert one.token == "..."
            one.process.terminate()
            assert "ssss" not in "".join(one.process.communicate(timeout=60))


def test_a_port_that_is_taken_is_named(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        run_addml(tmp_path, "serve", "--port", port).failed(f"127.0.0.1:{port}", "--port")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nothing.model",), "nothing.model"),
        (("--token", "short"), "--token"),
        (("--limit", "much"), "--limit"),
        (("--host", "no.such.host.invalid"), "no.such.host.invalid"),
    ],
)
def test_what_cannot_be_served_is_said(tmp_path, arguments, words):
    code = 2 if words == "--limit" else 1
    run_addml(tmp_path, "serve", "--port", 0, *arguments).failed(words, code=code)


def test_two_models_of_one_name(tmp_path):
    write_small(tmp_path / "small.csv")
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        run_addml(tmp_path, "fit", "small.csv", "--model", f"{folder}/shop.model", *QUICK).succeeded()
    run_addml(tmp_path, "serve", "a/shop.model", "b/shop.model").failed("is called shop too", "rename")


def test_what_is_missing_is_named(tmp_path):
    (tmp_path / "starlette.py").write_text("raise ImportError('no starlette')")
    paths = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    spawn_addml(tmp_path, "serve", PYTHONPATH=paths).failed("pip install 'addml[web]'")


def test_static_files_are_in_the_package():
    folder = Path(__import__("addml.server").server.__file__).parent / "static"
    assert {path.name for path in folder.iterdir()} == {"index.html", "inspector.js", "inspector.css", "openapi.json"}
