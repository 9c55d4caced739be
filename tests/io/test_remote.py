"""Files of the web and of an object store, from servers on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from addml.io.read import ReadError, read_table

TEXT = b"a,b\n1,2\n3,4\n"
GOOGLE = json.dumps(
    {"kind": "storage#object", "bucket": "bucket", "name": "folder/t.csv", "size": str(len(TEXT)), "generation": "1"}
).encode()
SEEN: list[tuple[str, str | None]] = []


class Server(BaseHTTPRequestHandler):
    """Plain files, redirects, and as much of S3 and Google's storage as reading an object needs."""

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        SEEN.append((path, self.headers.get("Authorization")))
        match path:
            case "/storage/v1/b/bucket/o/folder%2Ft.csv":
                self.answer(200, TEXT if "alt=media" in self.path else GOOGLE)
            case "/t.csv" | "/bucket/folder/t.csv":
                self.answer(200, TEXT)
            case "/cut.csv":
                self.answer(200, TEXT, {"Content-Length": "100"})
            case "/chunk.csv":
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.wfile.write(b"64\r\na,b\n1,2\n")
            case "/moved":
                self.answer(302, b"", {"Location": "/t.csv"})
            case "/away":
                host = self.headers["Host"].replace("127.0.0.1", "localhost")
                self.answer(302, b"", {"Location": f"http://{host}/t.csv"})
            case "/local":
                self.answer(302, b"", {"Location": "file:///etc/passwd"})
            case "/bucket" | "/bucket/":
                self.answer(200, b'<?xml version="1.0"?><ListBucketResult><KeyCount>0</KeyCount></ListBucketResult>')
            case _:
                self.answer(404, b"")

    def answer(self, code: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in ({"Content-Length": str(len(body))} | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("path", ["t.csv", "moved", "t.csv?token=secret"])
def test_a_file_of_the_web(address: str, path: str) -> None:
    assert read_table(f"http://{address}/{path}").table.to_pydict() == {"a": [1, 3], "b": [2, 4]}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("none.csv", "the server answered 404"),
        ("local", "Redirection to url 'file:///etc/passwd' is not allowed"),
        ("cut.csv", "the download ended after 12 of 100 bytes"),
        ("chunk.csv", "cannot be downloaded: IncompleteRead"),
    ],
)
def test_what_cannot_be_downloaded_is_said_without_secrets(address: str, path: str, expected: str) -> None:
    with pytest.raises(ReadError, match=expected) as caught:
        read_table(f"http://user:secret@{address}/{path}?key=hidden")
    assert "secret" not in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_a_password_goes_to_its_own_host_alone(address: str) -> None:
    SEEN.clear()
    read_table(f"http://user:secret@{address}/away")
    assert SEEN == [("/away", "Basic dXNlcjpzZWNyZXQ="), ("/t.csv", None)]


def test_an_object_of_s3(address: str, tmp_path: Path) -> None:
    query = f"scheme=http&endpoint_override={address}&region=us-east-1"
    result = read_table(f"s3://key:secret@bucket/folder/t.csv?{query}")
    assert result.table.to_pydict() == {"a": [1, 3], "b": [2, 4]}
    with pytest.raises(ReadError, match=r"s3://bucket/folder/none.csv: no such file") as caught:
        read_table(f"s3://key:secret@bucket/folder/none.csv?{query}")
    assert "secret" not in str(caught.value)


def test_an_object_of_google_storage(address: str) -> None:
    result = read_table(f"gs://anonymous@bucket/folder/t.csv?scheme=http&endpoint_override={address}")
    assert result.table.to_pydict() == {"a": [1, 3], "b": [2, 4]}
