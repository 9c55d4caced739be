"""Hostile clients: each attack with real sockets on loopback, against a server of its own with tight limits."""

import gzip
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import zipfile
from http.client import HTTPConnection
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import csv

from addml.client import Client, ServerError
from addml.errors import AddmlError
from addml.server import Limits
from addml.server.access import is_rare
from addml.server.job import check_unpacked
from addml.server.jobs import FOLDER_PREFIX, resident, watch
from tests.cli.running import QUICK, run_addml, write_small
from tests.server.conftest import connected, fetch, finished, serving


@pytest.fixture(scope="module")
def tight(tmp_path_factory):
    """A server with a model, whose limits are soon reached."""
    folder = tmp_path_factory.mktemp("tight")
    write_small(folder / "small.csv")
    run_addml(folder, "fit", "small.csv", *QUICK).succeeded()
    limits = ("timeout=1", "connections=20", "queue=2", "unpacked=5MB", "seconds=8", "rows=3MB", "memory=3GB")
    with serving(folder, "small.model", *(word for one in limits for word in ("--limit", one))) as one:
        yield one


def held(one):
    """Seconds until the server closes a connection, and what it says."""
    began, said = time.monotonic(), b""
    try:
        while piece := one.recv(10_000):
            said += piece
    except ConnectionError:
        pass
    return time.monotonic() - began, said


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost:",
        b"POST /api/v1/jobs?name=a.csv HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\na",
    ],
)
def test_what_is_unfinished_is_given_up(tight, sent):
    with connected(tight) as one:
        one.sendall(sent)
        seconds, said = held(one)
    assert seconds < 10  # of a timeout of one
    assert said == b"" or b" 408 " in said


def trickle(one):
    for _ in range(100):
        one.sendall(b"a")
        time.sleep(0.1)


def test_a_body_that_trickles_is_given_up(tight):
    head = f"POST /api/v1/jobs?name=a.csv HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {tight.token}\r\n"
    with connected(tight) as one:
        one.sendall(f"{head}Content-Length: 100000\r\n\r\n".encode())
        with pytest.raises(OSError, match=r"."):
            trickle(one)


def test_idle_connections_keep_nobody_out(tight):
    idle = [connected(tight) for _ in range(60)]
    try:
        for _ in range(3):
            assert tight.ask("GET", "/api/v1/health")[0] == 200
    finally:
        for one in idle:
            one.close()


def test_a_small_file_that_unpacks_to_much_is_not_read(tight):
    body = gzip.compress(b"a,b\n" + b"1,2\n" * 5_000_000)
    _, _, job = fetch(tight, "POST", "/api/v1/jobs?name=bomb.csv.gz", body)
    error = finished(tight, job)["error"]
    assert error["code"] == "too_large"
    assert error["message"].startswith("bomb.csv.gz: unpacks to more than 5 MB")


def test_a_sheet_with_more_rows_than_excel_holds_is_not_read(tmp_path):
    with zipfile.ZipFile(tmp_path / "bomb.xlsx", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", b"<row/>" * 1_100_000)
    with pytest.raises(AddmlError, match="a sheet has more than 1,048,576 rows") as found:
        check_unpacked(tmp_path / "bomb.xlsx", 10**9)
    assert found.value.code == "too_large"
    check_unpacked(write_small(tmp_path / "small.csv"), 10)  # not packed: --limit upload is for it


@pytest.mark.slow
def test_a_job_that_runs_too_long_is_stopped_and_the_queue_is_bounded(tight):
    body, path = (tight.folder / "small.csv").read_bytes(), "/api/v1/jobs?name=small.csv"
    _, _, endless = fetch(tight, "POST", f"{path}&epochs=1000000&members=50", body)
    while fetch(tight, "GET", f"/api/v1/jobs/{endless['id']}")[2]["state"] == "waiting":
        time.sleep(0.05)
    waiting = [fetch(tight, "POST", f"{path}&epochs=2&members=2", body) for _ in range(4)]
    assert [status for status, _, _ in waiting] == [202, 202, 429, 429]
    assert waiting[2][2]["error"]["code"] == "queue_full"
    assert waiting[2][1]["retry-after"] == "1"
    assert tight.ask("GET", "/api/v1/ready")[0] == 503
    assert finished(tight, endless)["error"]["code"] == "time_limit"
    ends = [finished(tight, job) for _, _, job in waiting[:2]]  # each has its turn; a busy machine may need its 8 s too
    assert {(one["state"], (one["error"] or {}).get("code")) for one in ends} <= {
        ("done", None),
        ("failed", "time_limit"),
    }
    assert tight.ask("GET", "/api/v1/ready")[0] == 200


def test_a_process_that_takes_too_much_memory_is_stopped():
    if not Path("/proc/self/status").exists():
        pytest.skip("the memory of a process is read from /proc")
    program = "import time; x = bytearray(300_000_000); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", program])
    assert watch(process, Limits(memory=100 * 10**6))["code"] == "memory_limit"
    assert process.wait(60) == -signal.SIGKILL
    assert 10**6 < resident(os.getpid()) < 10**11
    assert resident(process.pid) == 0


def test_few_large_bodies_are_read_at_once(tight):
    head = f"POST /api/v1/models/small/score HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {tight.token}\r\n"
    with connected(tight) as first, connected(tight) as second:
        for one in (first, second):
            one.sendall(f"{head}Content-Length: 2000000\r\n\r\n{{".encode())
        time.sleep(0.2)
        status, _, said = fetch(tight, "POST", "/api/v1/models/small/score", b" " * 1_500_000)
        assert (status, said["error"]["code"]) == (503, "busy")
        assert tight.ask("GET", "/api/v1/health")[0] == 200
    assert fetch(tight, "POST", "/api/v1/models/small/score", b" " * 4_000_000)[0] == 413


def test_rows_of_every_type_get_the_same_scores(tight):
    rows, path = csv.read_csv(tight.folder / "small.csv"), "/api/v1/models/small/score"
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    bodies = {
        "application/json": json.dumps({"rows": rows.to_pylist()}, default=str).encode(),
        "application/x-ndjson": "\n".join(json.dumps(row, default=str) for row in rows.to_pylist()).encode(),
        "text/csv": (tight.folder / "small.csv").read_bytes(),
        "application/vnd.apache.arrow.stream": sink.getvalue().to_pybytes(),
    }
    answers = {kind: fetch(tight, "POST", path, body, content_type=kind)[2] for kind, body in bodies.items()}
    expected = answers.pop("application/json")
    assert len(expected["results"]) == 300
    for kind, answer in answers.items():
        assert answer == expected, kind
    status, _, said = fetch(tight, "POST", path, b"x", content_type="image/png")
    assert (status, said["error"]["code"]) == (415, "unsupported_type")


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        ("application/x-ndjson", b"1\n" * 1_400_000, "more than 100,000 rows"),
        ("application/json", b'{"rows": [' + b"{}," * 800_000 + b"{}]}", "more than 100,000 rows"),
        ("text/csv", b"height," * 200_000 + b"weight\n1\n", "the first line has more than 1 MB"),
    ],
)
def test_what_is_too_long_or_wide_is_refused_before_it_is_read(tight, kind, body, words):
    status, _, said = fetch(tight, "POST", "/api/v1/models/small/score", body, content_type=kind)
    assert (status, said["error"]["code"]) == (413, "too_large")
    assert words in said["error"]["message"]


def test_a_body_of_unknown_size_is_scored(tight):
    row = json.dumps({"rows": [{"height": 170, "weight": 70, "colour": "red", "when": "2025-03-03"}]}).encode()
    connection = HTTPConnection(tight.url.removeprefix("http://"))
    headers = {"authorization": f"Bearer {tight.token}", "transfer-encoding": "chunked"}
    connection.request("POST", "/api/v1/models/small/score", iter([row[:9], row[9:]]), headers, encode_chunked=True)
    answer = connection.getresponse()
    assert answer.status == 200
    assert json.loads(answer.read())["results"] == fetch(tight, "POST", "/api/v1/models/small/score", row)[2]["results"]
    connection.close()


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_compressed_arrow_is_refused_before_it_is_unpacked(tight, codec):
    table, sink = pa.table({"height": ["x" * 10_000] * 1000}).cast(pa.schema([("height", pa.string())])), None
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as stream:
        stream.write_table(table)
    body, kind = sink.getvalue().to_pybytes(), "application/vnd.apache.arrow.stream"
    _, _, said = fetch(tight, "POST", "/api/v1/models/small/score", body, content_type=kind)
    assert "is compressed" in said["error"]["message"]
    for broken in (b"", b"\xff\xff\xff\xff\x10\0\0\0" + b"\x7f" * 16, body[:100]):
        assert fetch(tight, "POST", "/api/v1/models/small/score", broken, content_type=kind)[0] == 422


def test_a_model_that_is_written_anew_is_used_by_rows_and_files(tmp_path):
    write_small(tmp_path / "small.csv")
    run_addml(tmp_path, "fit", "small.csv", *QUICK).succeeded()
    row = json.dumps({"rows": [{"height": 170, "weight": 70, "colour": "red", "when": "2025-03-03"}]}).encode()
    with serving(tmp_path, "small.model") as one:
        before = fetch(one, "POST", "/api/v1/models/small/score", row)[2]
        run_addml(tmp_path, "fit", "small.csv", "--members", 2, "--epochs", 3, "--contamination", 0.02).succeeded()
        after = fetch(one, "POST", "/api/v1/models/small/score", row)[2]
        job = one.client.detect(tmp_path / "small.csv", model="small")
    assert before["model_hash"] != after["model_hash"] == job["summary"]["model_hash"]
    assert before["threshold"] != after["threshold"] == job["summary"]["threshold"]


@pytest.mark.slow
def test_nothing_is_left_of_a_server_that_is_killed(tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    write_small(tmp_path / "small.csv")
    with serving(tmp_path) as one:
        body = (tmp_path / "small.csv").read_bytes()
        _, _, job = fetch(one, "POST", "/api/v1/jobs?name=small.csv&epochs=1000000", body)
        while fetch(one, "GET", f"/api/v1/jobs/{job['id']}")[2]["progress"] is None:
            time.sleep(0.05)
        begun = [file.read_text().split() for file in Path(f"/proc/{one.process.pid}/task").glob("*/children")]
        ((child,),) = filter(None, begun)
        assert one.token.encode() not in Path(f"/proc/{child}/environ").read_bytes()
        one.process.kill()
        one.process.wait(20)
        end = time.monotonic() + 30
        while Path(f"/proc/{child}").exists() and "Z" not in Path(f"/proc/{child}/stat").read_text().split()[2]:
            assert time.monotonic() < end
            time.sleep(0.1)
    assert len(list((tmp_path / "tmp").glob(f"{FOLDER_PREFIX}*"))) == 1
    with serving(tmp_path) as one:
        assert fetch(one, "GET", "/api/v1/jobs")[2]["total"] == 0
        assert len(list((tmp_path / "tmp").glob(f"{FOLDER_PREFIX}*"))) == 1  # its own


# Smaller things -----------------------------------------------------------------------------------------------


def test_what_is_not_allowed_says_what_is(tight):
    status, headers, said = fetch(tight, "PUT", "/api/v1/jobs")
    assert (status, said["error"]["code"]) == (405, "method_not_allowed")
    assert {*headers["allow"].replace(" ", "").split(",")} == {"GET", "HEAD", "POST"}


def test_a_slash_leads_nowhere(tight):
    status, headers, _ = fetch(tight, "GET", "/api/v1/models/", host="evil.example")
    assert (status, headers["location"]) == (404, None)


def test_a_browser_without_a_token_gets_a_page(tight):
    status, headers, page = tight.ask("GET", "/", accept="text/html,*/*")
    assert (status, headers["content-type"]) == (401, "text/html; charset=utf-8")
    assert "addml serve printed" in page


def test_lists_come_in_pages(tight):
    assert fetch(tight, "GET", "/api/v1/models?limit=1")[2]["total"] >= 1
    assert fetch(tight, "GET", "/api/v1/models?offset=1000")[2]["models"] == []
    status, _, said = fetch(tight, "GET", "/api/v1/models?limit=0")
    assert (status, said["error"]["message"]) == (422, "limit='0': give a whole number from 1 to 1000")


def test_requests_are_counted_and_logged_without_the_token(tmp_path):
    log = tmp_path / "access.log"
    with serving(tmp_path, "--access-log", log, "--root-path", "/shop") as one:
        assert one.ask("GET", "/api/v1/health")[0] == 200
        _, _, metrics = fetch(one, "GET", "/metrics")
        assert 'addml_requests_total{method="GET",path="/api/v1/health",status="200"} 1\n' in metrics
        assert 'addml_request_seconds_count{path="/api/v1/health"} 1\n' in metrics
        connection = HTTPConnection(one.url.removeprefix("http://"))
        connection.request("GET", f"/?token={one.token}")
        answer = connection.getresponse()
        assert answer.headers["location"] == "/shop/"
        assert "Path=/shop;" in answer.headers["set-cookie"]
        connection.close()
        document = fetch(one, "GET", "/api/v1/openapi.json")[2]
        assert (document["openapi"], document["servers"]) == ("3.1.0", [{"url": "/shop"}])
    lines = log.read_text()
    assert " GET /shop/api/v1/health 200 " in lines
    assert one.token not in lines


def test_limits_are_named():
    assert Limits.parse(["upload=2MB", "queue=3"]) == Limits(upload=2 * 10**6, queue=3)
    for odd in ("200MB", "uplod=1MB", "queue=0", "queue=x", "upload=much"):
        with pytest.raises(ValueError, match="--limit"):
            Limits.parse([odd])


def test_a_message_is_not_logged_again_and_again():
    record = logging.makeLogRecord({"name": "asyncio", "msg": "out of files"})
    assert sum(is_rare(record) for _ in range(1000)) in (5, 10)  # where a minute ends meanwhile


# The client ---------------------------------------------------------------------------------------------------


@pytest.fixture
def recording():
    """An address at which requests are recorded, and answered by a redirect to another one."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        heads = []

        def answer():
            connection, _ = listening.accept()
            with connection:
                heads.append(connection.recv(10_000))
                connection.sendall(
                    b"HTTP/1.1 302 Found\r\nlocation: http://other.example/\r\ncontent-length: 0\r\n\r\n"
                )

        threading.Thread(target=answer, daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}", heads


def test_a_client_follows_no_redirect(recording):
    with pytest.raises(ServerError, match=r"redirects to http://other\.example/; the token is not sent there"):
        Client(f"http://{recording[0]}", "t" * 20).models()


def test_a_client_uses_no_proxy_for_loopback_and_one_for_others(tight, recording, monkeypatch):
    monkeypatch.setenv("http_proxy", f"http://{recording[0]}")
    monkeypatch.delenv("no_proxy", raising=False)
    assert tight.client.models()
    assert recording[1] == []
    with pytest.raises(ServerError, match="redirects"):
        Client("http://elsewhere.example:81/addml", "t" * 20).model("small")
    assert recording[1][0].startswith(b"GET http://elsewhere.example:81/addml/api/v1/models/small HTTP/1.1\r\n")


def test_a_client_keeps_its_connection(tight):
    client = tight.client
    client.models()
    (first,) = client._idle
    client.model("small")
    assert client._idle == [first]
    time.sleep(1.8)  # the server's timeout is one second
    assert client.model("small")["name"] == "small"
    assert client._idle != [first]
