"""Nobody is let in without the token, from no page but the server's own."""

import asyncio
import socket
from contextlib import suppress
from http.client import HTTPConnection

import pytest
from starlette.datastructures import URL
from starlette.requests import Request

from addml.client import Client, ServerError
from addml.server import check_token
from addml.server.access import Guard

ADDRESSES = ["/", "/inspector.js", "/api/v1/models", "/api/v1/models/small", "/api/v1/jobs", "/nowhere"]


@pytest.mark.parametrize("path", ADDRESSES)
@pytest.mark.parametrize(
    "headers",
    [{}, {"authorization": "Bearer wrong"}, {"authorization": "Basic x"}, {"cookie": "addml-1=x"}, {"x_token": "x"}],
)
def test_without_the_token_nothing_is_said(server, path, headers):
    status, _, said = server.ask("GET", path, **headers)
    assert status == 401
    assert "token" in said["error"]["message"]
    assert said["error"]["code"] == "unauthorized"
    assert server.token not in str(said)


@pytest.mark.parametrize("path", ADDRESSES[:-1])
def test_with_the_token_everything_is(server, path):
    assert server.ask("GET", path, authorization=f"Bearer {server.token}")[0] == 200


MUCH = 400 * 10**6  # bytes, far more than the buffers of two sockets hold


@pytest.mark.parametrize(
    "path", ["/api/v1/jobs?name=a.csv", "/api/v1/models/small/score", "/api/v1/health", "/nowhere"]
)
@pytest.mark.parametrize("framing", [f"Content-Length: {MUCH}", "Transfer-Encoding: chunked"])
def test_little_is_read_from_a_client_that_may_send_nothing(server, path, framing):
    host, _, port = server.url.removeprefix("http://").partition(":")
    piece, sent = b"10000\r\n" + b"x" * 0x10000 + b"\r\n", 0
    with socket.create_connection((host, int(port)), timeout=60) as one:
        one.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n".encode())
        with suppress(ConnectionError):
            while sent < MUCH:
                one.sendall(piece)
                sent += len(piece)
        status = one.recv(12)
    assert sent < MUCH / 4
    assert status in (b"HTTP/1.1 401", b"HTTP/1.1 405")  # health takes no POST


@pytest.mark.parametrize(("size", "is_read", "is_closed"), [(900_000, 900_000, False), (10**8, 10**6, True)])
def test_how_much_is_read_of_what_is_refused(size, is_read, is_closed):
    read, sent = [], []

    async def receive():
        read.append(100_000)
        return {"type": "http.request", "body": bytes(100_000), "more_body": sum(read) < size}

    async def send(message):
        sent.append(message)

    app = guard()
    asyncio.run(app({**asked("/api/v1/jobs").scope, "method": "POST"}, receive, send))
    assert sum(read) == is_read
    assert sent[0]["status"] == 401
    assert ((b"connection", b"close") in sent[0]["headers"]) == is_closed


def test_a_client_hears_why_a_large_file_is_refused(server, tmp_path):
    (tmp_path / "large.csv").write_bytes(b"a,b\n" + b"1,2\n" * 5_000_000)
    with pytest.raises(ServerError, match="the token is missing or not this server's") as found:
        Client(server.url, "w" * 20).detect(tmp_path / "large.csv")
    assert found.value.status == 401


def test_a_connection_goes_on_after_a_small_body(server):
    connection = HTTPConnection(server.url.removeprefix("http://"))
    connection.request("POST", "/api/v1/jobs?name=a.csv", b"x" * 900_000)
    answer = connection.getresponse()
    assert (answer.status, answer.headers["connection"]) == (401, None)
    own = connection.sock
    answer.read()
    connection.request("GET", "/api/v1/health")
    assert connection.getresponse().status == 200
    assert connection.sock is own
    connection.close()


def test_only_that_it_is_there_is_said_to_all(server):
    status, _, said = server.ask("GET", "/api/v1/health")
    assert status == 200
    assert set(said) == {"status", "addml"}


def guard():
    return Guard(None, "t" * 20, "addml", lambda *about: None)


def asked(path, **headers):
    named = [(name.encode(), value.encode()) for name, value in headers.items()]
    query = path.partition("?")[2].encode()
    scope = {"type": "http", "method": "GET", "path": path.partition("?")[0], "query_string": query, "headers": named}
    return Request(scope)


@pytest.mark.parametrize("host", ["x/api/v1/health?", "x/api/v1/health#", "[::", ""])
def test_the_host_header_opens_nothing(host, monkeypatch):
    """Older versions of Starlette put it into the address unread."""
    monkeypatch.setattr(Request, "url", URL(f"http://{host}/api/v1/models"))
    own = guard()
    assert own._intercept(asked("/api/v1/models", host=host)).status_code == 401
    assert own._intercept(asked("/api/v1/health", host=host)) is None


@pytest.mark.parametrize("path", ["//evil.example/", "/\\\\evil.example/", "///evil.example/"])
def test_the_first_address_leads_to_no_other_server(path):
    answer = guard()._intercept(asked(f"{path}?token={'t' * 20}"))
    assert answer.headers["location"] == "/evil.example/"


def cookie(server):
    return f"addml-{server.url.rpartition(':')[2]}={server.token}"


def test_the_first_address_becomes_a_cookie_that_no_script_reads(server):
    connection = HTTPConnection(server.url.removeprefix("http://"))
    connection.request("GET", f"/?token={server.token}")
    answer = connection.getresponse()
    assert answer.status == 303
    assert answer.headers["location"] == "/"  # the token is in no history
    assert "HttpOnly" in answer.headers["set-cookie"]
    assert "samesite=strict" in answer.headers["set-cookie"].lower()
    assert answer.headers["set-cookie"].startswith(cookie(server))
    connection.close()
    assert server.ask("GET", "/api/v1/models", cookie=cookie(server))[0] == 200


@pytest.mark.parametrize("origin", [None, "http://127.0.0.1:1", "http://evil.example", "null"])
def test_a_page_of_another_server_cannot_use_the_cookie(server, origin):
    headers = {"cookie": cookie(server), **({"origin": origin} if origin else {})}
    assert server.ask("POST", "/api/v1/models/small/score", b"{}", **headers)[0] == 401
    assert server.ask("DELETE", "/api/v1/jobs/x", **headers)[0] == 401
    assert server.ask("DELETE", "/api/v1/jobs/x", cookie=cookie(server), origin=server.url)[0] == 404


def test_pages_load_nothing_from_elsewhere_and_are_kept_nowhere(server):
    _, headers, page = server.ask("GET", "/", authorization=f"Bearer {server.token}")
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "no-referrer"
    assert "http" not in page


@pytest.mark.parametrize("token", ["", "short", "x" * 15, "é" * 20, "tab\t" * 8])
def test_a_token_that_is_easily_guessed_or_cannot_be_sent_is_refused(token):
    with pytest.raises(ValueError, match="--token"):
        check_token(token)
