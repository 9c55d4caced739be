"""The attacks of `test_attacks` at their full size, against a server with the default limits."""

import gzip
import json
import subprocess
import threading
import time
import zipfile

import pytest

from addml.server.jobs import resident
from tests.cli.running import QUICK, run_addml, write_small
from tests.server.conftest import connected, fetch, finished, serving, stop

pytestmark = pytest.mark.slow
GB = 10**9
ROW = json.dumps({"rows": [{"height": 170, "weight": 70, "colour": "red", "when": "2025-03-03"}]}).encode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("full")
    write_small(folder / "small.csv")
    run_addml(folder, "fit", "small.csv", *QUICK).succeeded()
    return folder


@pytest.fixture(scope="module")
def usual(folder):
    with serving(folder, "small.model") as one:
        yield one


class Watch:
    """The most memory that a server and its jobs hold within the block; it answers health checks and scores rows."""

    def __init__(self, server):
        self.server, self.most, self.answered, self.scored, self.is_over = server, 0, 0, 0, False
        self.thread = threading.Thread(target=self.look)

    def look(self):
        while not self.is_over:
            self.most = max(self.most, resident(self.server.process.pid))
            self.answered += self.server.ask("GET", "/api/v1/health")[0] == 200
            self.scored += fetch(self.server, "POST", "/api/v1/models/small/score", ROW)[0] == 200
            time.sleep(0.05)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *error):
        self.is_over = True
        self.thread.join()


def test_300_idle_connections_with_256_files(folder):
    with serving(folder, files=256) as one:
        idle = []
        try:
            idle += [connected(one) for _ in range(300)]
            assert [one.ask("GET", "/api/v1/health")[0] for _ in range(5)] == [200] * 5
            assert fetch(one, "GET", "/api/v1/jobs")[0] == 200
        finally:
            for connection in idle:
                connection.close()
        assert len(stop(one)) < 10_000  # it wrote 140 MB before


def test_a_gzip_of_3_mb_that_unpacks_to_a_gigabyte_and_a_half(usual):
    body = gzip.compress(b"a,b\n" + b"1,2\n" * 2_500_000) * 150
    assert len(body) < 3 * 10**6
    with Watch(usual) as watch:
        error = finished(usual, fetch(usual, "POST", "/api/v1/jobs?name=bomb.csv.gz", body)[2])["error"]
    assert (error["code"], "unpacks to more than 1,000 MB" in error["message"]) == ("too_large", True)
    assert watch.most < 0.7 * GB


@pytest.mark.parametrize(
    ("row", "times"), [(b"<row><c><v>1</v></c></row>", 12_000_000), (b'<row r="1000000000"><c><v>1</v></c></row>', 1)]
)
def test_a_workbook_with_millions_of_rows(usual, tmp_path, row, times):
    import openpyxl

    openpyxl.Workbook().save(tmp_path / "empty.xlsx")
    with (
        zipfile.ZipFile(tmp_path / "empty.xlsx") as empty,
        zipfile.ZipFile(tmp_path / "bomb.xlsx", "w", zipfile.ZIP_DEFLATED) as bomb,
    ):
        for name in empty.namelist():
            if not name.startswith("xl/worksheets/"):
                bomb.writestr(name, empty.read(name))
        with bomb.open("xl/worksheets/sheet1.xml", "w") as sheet:
            sheet.write(b'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>')
            for _ in range(max(1, times // 10_000)):
                sheet.write(row * min(times, 10_000))
            sheet.write(b"</sheetData></worksheet>")
    assert (tmp_path / "bomb.xlsx").stat().st_size < 1.5 * 10**6
    with Watch(usual) as watch:
        job = fetch(usual, "POST", "/api/v1/jobs?name=bomb.xlsx", (tmp_path / "bomb.xlsx").read_bytes())[2]
        error = finished(usual, job)["error"]
    assert "has more than 1,048,576 rows" in error["message"]
    assert watch.most < 0.7 * GB


def send_four(server, body):
    """The statuses of four equal requests at once."""
    statuses = []

    def send():
        statuses.append(fetch(server, "POST", "/api/v1/models/small/score", body)[0])

    threads = [threading.Thread(target=send) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return statuses


def test_four_json_bodies_of_56_mb(usual, folder):
    row = json.dumps({"height": 170.5, "weight": 70.25, "colour": "red", "when": "2025-03-03"})
    body = f'{{"rows": [{", ".join([row] * (56 * 10**6 // (len(row) + 2)))}]}}'.encode()
    assert 55 * 10**6 < len(body) < 57 * 10**6
    with Watch(usual) as watch:
        assert send_four(usual, body) == [413] * 4  # --limit rows=32MB
    assert watch.most < 0.5 * GB
    with serving(folder, "small.model", "--limit", "rows=60MB") as one, Watch(one) as watch:
        statuses = send_four(one, body)  # too many rows, which is known once they are parsed
    assert set(statuses) == {413, 503}
    assert watch.most < 2 * GB
    assert watch.answered == watch.scored > 5


def test_500_uploads_and_a_training_without_end(usual):
    body, path = (usual.folder / "small.csv").read_bytes(), "/api/v1/jobs?name=small.csv&epochs=1000000&members=50"
    found = [fetch(usual, "POST", path, body) for _ in range(500)]
    taken = [job["id"] for status, _, job in found if status == 202]
    assert 20 <= len(taken) <= 21  # one may run already
    assert {status for status, _, _ in found[len(taken) :]} == {429}
    assert fetch(usual, "POST", "/api/v1/models/small/score", ROW)[0] == 200  # others are served meanwhile
    for id in taken:
        assert fetch(usual, "DELETE", f"/api/v1/jobs/{id}")[0] == 204


def test_a_full_disk_shows_no_path(folder, tmp_path):
    small = tmp_path / "tmp"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", small], capture_output=True).returncode:
        pytest.skip("a small disk takes the right to mount one")
    try:
        with serving(folder, TMPDIR=str(small)) as one:
            rows = b"".join(b"%d,%d\n" % (i % 97, i % 89) for i in range(150_000))
            status, _, said = fetch(one, "POST", "/api/v1/jobs?name=a.csv", b"a,b\n" + rows * 2)
            assert (status, said["error"]["code"]) == (507, "disk_full")
            job = fetch(one, "POST", "/api/v1/jobs?name=a.csv&members=2&epochs=2", b"a,b\n" + rows[:800_000])[2]
            error = finished(one, job)["error"]
        assert error["code"] == "disk_full"
        assert str(small) not in json.dumps([said, error])
        assert "the server's disk is full" in error["message"]
    finally:
        subprocess.run(["umount", small], check=True)
