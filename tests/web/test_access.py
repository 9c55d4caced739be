"""Nobody is let in without the token, from no page but the server's own."""

import pytest
from starlette.datastructures import URL
from starlette.requests import Request

from addml.web.access import Access, Guard

ADDRESSES = ["/", "/inspector.js", "/api/models", "/api/models/small", "/api/jobs", "/nowhere"]


@pytest.mark.parametrize("path", ADDRESSES)
@pytest.mark.parametrize(
    "headers",
    [{}, {"authorization": "Bearer wrong"}, {"authorization": "Basic x"}, {"cookie": "addml-1=x"}, {"x_token": "x"}],
)
def test_without_the_token_nothing_is_said(server, path, headers):
    status, _, said = server.ask("GET", path, **headers)
    assert status == 401
    assert "token" in said["error"]
    assert server.token not in str(said)


@pytest.mark.parametrize("path", ADDRESSES[:-1])
def test_with_the_token_everything_is(server, path):
    assert server.ask("GET", path, authorization=f"Bearer {server.token}")[0] == 200


def test_only_that_it_is_there_is_said_to_all(server):
    status, _, said = server.ask("GET", "/api/health")
    assert status == 200
    assert set(said) == {"status", "addml"}


def asked(path, **headers):
    named = [(name.encode(), value.encode()) for name, value in headers.items()]
    query = path.partition("?")[2].encode()
    scope = {"type": "http", "method": "GET", "path": path.partition("?")[0], "query_string": query, "headers": named}
    return Request(scope)


@pytest.mark.parametrize("host", ["x/api/health?", "x/api/health#", "[::", ""])
def test_the_host_header_opens_nothing(host, monkeypatch):
    """Older versions of Starlette put it into the address unread."""
    monkeypatch.setattr(Request, "url", URL(f"http://{host}/api/models"))
    guard = Guard(None, Access("t" * 20, "addml"))
    assert guard._answer(asked("/api/models", host=host)).status_code == 401
    assert guard._answer(asked("/api/health", host=host)) is None


@pytest.mark.parametrize("path", ["//evil.example/", "/\\\\evil.example/", "///evil.example/"])
def test_the_first_address_leads_to_no_other_server(path):
    answer = Guard(None, Access("t" * 20, "addml"))._answer(asked(f"{path}?token={'t' * 20}"))
    assert answer.headers["location"] == "/evil.example/"


def cookie(server):
    return f"addml-{server.url.rpartition(':')[2]}={server.token}"


def test_the_first_address_becomes_a_cookie_that_no_script_reads(server):
    from http.client import HTTPConnection

    connection = HTTPConnection(server.url.removeprefix("http://"))
    connection.request("GET", f"/?token={server.token}")
    answer = connection.getresponse()
    assert answer.status == 303
    assert answer.headers["location"] == "/"  # the token is in no history
    assert "HttpOnly" in answer.headers["set-cookie"]
    assert "samesite=strict" in answer.headers["set-cookie"].lower()
    assert answer.headers["set-cookie"].startswith(cookie(server))
    connection.close()
    assert server.ask("GET", "/api/models", cookie=cookie(server))[0] == 200


@pytest.mark.parametrize("origin", [None, "http://127.0.0.1:1", "http://evil.example", "null"])
def test_a_page_of_another_server_cannot_use_the_cookie(server, origin):
    headers = {"cookie": cookie(server), **({"origin": origin} if origin else {})}
    assert server.ask("POST", "/api/models/small/score", b"{}", **headers)[0] == 401
    assert server.ask("DELETE", "/api/jobs/x", **headers)[0] == 401
    assert server.ask("DELETE", "/api/jobs/x", cookie=cookie(server), origin=server.url)[0] == 404


def test_pages_load_nothing_from_elsewhere_and_are_kept_nowhere(server):
    _, headers, page = server.ask("GET", "/", authorization=f"Bearer {server.token}")
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "no-referrer"
    assert "http" not in page


@pytest.mark.parametrize("token", ["", "short", "x" * 15, "é" * 20, "tab\t" * 8])
def test_a_token_that_is_easily_guessed_or_cannot_be_sent_is_refused(token):
    with pytest.raises(ValueError, match="--token"):
        Access(token, "addml")
