"""Rows by REST get what rows of a file get, to the last bit."""

import csv
import datetime
import json
import socket
import threading
from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest

import addml
from addml.client import Client, ServerError
from addml.server.models import _accepted_keys
from tests.cli.running import run_addml

COLUMNS = {"height": float, "weight": float, "colour": str, "when": str}


@pytest.fixture(scope="module")
def rows(server):
    with (server.folder / "small.csv").open(newline="") as file:
        return [{name: kind(row[name]) for name, kind in COLUMNS.items()} for row in csv.DictReader(file)]


@pytest.fixture(scope="module")
def scored(server):
    """What `addml score` writes."""
    run_addml(server.folder, "score", "small.csv", "--model", "small.model", "--top", 0).succeeded()
    with (server.folder / "small.scored.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_scores_and_reasons_are_those_of_the_file(server, rows, scored):
    results = server.client.score("small", rows)
    assert [one["score"] for one in results] == [float(one["score"]) for one in scored]
    assert [one["is_anomaly"] for one in results] == [one["is_anomaly"] == "true" for one in scored]
    assert [one["p_value"] for one in results] == [float(one["p_value"]) for one in scored]
    words = ["; ".join(reason["words"] for reason in one["reasons"]) for one in results]
    assert words == [one["reasons"] for one in scored]
    assert results[41]["is_anomaly"]
    assert results[41]["reasons"][0]["column"] == "height"


def test_rows_alone_get_what_they_get_among_others(server, rows):
    several = server.client.score("small", rows[:30])
    assert [server.client.score("small", [row])[0]["score"] for row in rows[:30]] == [one["score"] for one in several]


def test_many_rows_are_sent_some_at_a_time(server, rows, monkeypatch):
    monkeypatch.setattr("addml.client.ROWS_AT_ONCE", 70)
    whole, parts = server.client.score("small", rows, reasons=0), Client(server.url, server.token)
    assert parts.score("small", rows, reasons=0) == whole
    assert len(whole) == 300


def test_wide_rows_are_sent_fewer_at_a_time(server, rows, monkeypatch):
    """And a column that one part of them lacks is a gap there, as it is among others."""
    odd = [{name: value for name, value in rows[0].items() if name != "weight"}, *rows[:9]]
    whole = server.client.score("small", odd)
    monkeypatch.setattr("addml.client.BYTES_AT_ONCE", 100)
    assert server.client.score("small", odd) == whole


@pytest.mark.parametrize(
    ("name", "value", "same"),
    [
        ("weight", Decimal("70.5"), 70.5),
        ("weight", Decimal("NaN"), None),
        ("weight", pd.NA, None),
        ("weight", np.float32(70.5), 70.5),
        ("when", np.datetime64("2025-03-03", "ns"), "2025-03-03"),
        ("when", np.datetime64("NaT"), None),
        ("when", datetime.date(2025, 3, 3), "2025-03-03"),
        ("when", pd.Timestamp("2025-03-03"), "2025-03-03"),
    ],
)
def test_values_of_many_kinds(server, rows, name, value, same):
    first, second, _ = server.client.score("small", [{**rows[0], name: value}, {**rows[0], name: same}, rows[1]])
    assert first == second


@pytest.mark.parametrize("value", [b"red", np.zeros(3)])
def test_values_that_are_none_are_refused(rows, value):
    with pytest.raises(ValueError, match="row 1: colour has type"):
        Client().score("small", [{**rows[0], "colour": value}])


@pytest.mark.parametrize("odd", ["height", {"height": 1}, [[1, 2]], np.zeros((2, 2)), iter([])])
def test_what_are_no_rows_is_said(odd):
    with pytest.raises(TypeError, match="give a data frame, or a list with a dict per row"):
        Client().score("small", odd)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_data_frames(server, rows, frame):
    assert server.client.score("small", frame(rows[:5])) == server.client.score("small", rows[:5])


def test_gaps(server, rows):
    """A value that is null, not a number, or not there where other rows have one."""
    gap = {**rows[0], "weight": None}
    lacking = {name: value for name, value in rows[0].items() if name != "weight"}
    not_a_number = {**rows[0], "weight": float("nan")}
    first, second, third, other = server.client.score("small", [gap, lacking, not_a_number, rows[1]])
    assert first == second == third
    assert first != other
    detector = addml.load(server.folder / "small.model")
    with pytest.warns(UserWarning, match="missing values in columns") as warned:
        expected = detector.anomaly_score(pd.DataFrame([{"name": "x", **gap}]).assign(weight=np.nan))
    assert first["score"] == expected[0]
    body = json.dumps({"rows": [gap]}).encode()
    _, _, said = server.ask("POST", "/api/v1/models/small/score", body, authorization=f"Bearer {server.token}")
    assert said["notes"] == [str(one.message) for one in warned]


def test_reasons_of_all_rows_and_of_none(server, rows):
    assert all(one["reasons"] for one in server.client.score("small", rows[:3], all=True))
    assert not any(one["reasons"] for one in server.client.score("small", rows, reasons=0))
    assert len(server.client.score("small", [rows[41]], reasons=1)[0]["reasons"]) == 1


def test_what_is_not_used_is_said(server, rows):
    body = json.dumps({"rows": [{**rows[0], "name": "somebody", "shoe": 44}]}).encode()
    _, _, said = server.ask("POST", "/api/v1/models/small/score", body, authorization=f"Bearer {server.token}")
    assert said["ignored"] == ["name", "shoe"]
    assert said["threshold"] == addml.load(server.folder / "small.model").threshold_


def test_what_is_not_used_may_be_of_any_kind(server, rows):
    odd = [{**rows[0], "note": 1}, {**rows[0], "note": "x"}, {**rows[0], "note": [{}]}]
    assert server.client.score("small", odd) == server.client.score("small", [rows[0]] * 3)


def test_the_names_of_what_lies_within_are_known():
    assert _accepted_keys(SimpleNamespace(used=("a.b.c", "d"), by=(), ids=("e",))) == {"a", "a.b", "a.b.c", "d", "e"}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", '"rows"'),
        (b'{"rows": {}}', '"rows"'),
        (b'{"rows": []}', "no rows"),
        (b'{"rows": [1]}', "row 1 is 1"),
        (b'{"rows": [{}]}', "row 1 is {}"),
        (b'{"rows": [{"height": 1}]}', "'weight'"),
        (b'{"rows": [{"hight": 1, "weight": 1, "colour": "red", "when": "2025-03-01"}]}', "'hight'"),
        (b'{"rows": [{"height": [1], "weight": 1, "colour": "red", "when": "2025-03-01"}]}', "height"),
        (
            b'{"rows": [{"height": {"x": 1}, "weight": 1, "colour": "red", "when": "2025-03-01"}]}',
            "lacks 1 column that the model needs: 'height'",
        ),
        (b'{"rows": [{"height": 1}], "reason": 3}', "'reason'"),
        (b'{"rows": [{"height": 1}], "reasons": -1}', "reasons=-1"),
        (b'{"rows": [{"height": 1}], "reasons": true}', "reasons=true"),
        (b'{"rows": [{"height": 1}], "all": 1}', "all=1"),
    ],
)
def test_what_is_wrong_is_named(server, body, words):
    status, _, said = server.ask("POST", "/api/v1/models/small/score", body, authorization=f"Bearer {server.token}")
    assert status == 422
    assert words in said["error"]["message"]
    assert "/tmp" not in said["error"]["message"]


def test_an_infinite_number_is_refused_by_the_client(server, rows):
    with pytest.raises(ValueError, match="row 2: height is inf"):
        server.client.score("small", [rows[0], {**rows[1], "height": float("inf")}])


def test_models_are_listed_and_described(server):
    (small,) = (one for one in server.client.models() if one["name"] == "small")
    assert small == {**small, "noun": "row", "trained_rows": 300, "columns": 4}
    about = server.client.model("small")
    assert about["columns"] == {"height": "number", "weight": "number", "colour": "category", "when": "date"}
    assert [one["column"] for one in about["usual"]] == list(COLUMNS)
    height, weight, colour, when = (one["value"] for one in about["usual"])
    assert 168 < height < 172
    assert 68 < weight < 72
    assert colour in ("red", "green", "blue")
    assert when == "2025-03-14"
    assert str(server.folder) not in json.dumps(about)


def test_another_name_is_suggested(server):
    with pytest.raises(ServerError, match=r"no model 'smal' here. Did you mean 'small'") as found:
        server.client.model("smal")
    assert found.value.status == 404


def test_a_client_says_what_is_wrong_with_an_address():
    with pytest.raises(ValueError, match="give an address"):
        Client("127.0.0.1:8765")
    with pytest.raises(ServerError, match="does not answer"):
        Client("http://127.0.0.1:9", "x").models()
    with pytest.raises(ServerError, match="does not answer"):
        Client("http://127.0.0.1:9/?token=abc").models()
    for odd in ("http://[::1", "http://localhost:1x", "http://localhost:99999"):
        with pytest.raises(ValueError, match="give an address"):
            Client(odd)


@pytest.fixture
def answering():
    """A client of a server that says one thing and hangs up, or says nothing at all."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def client(said):
            def answer():
                connection, _ = listening.accept()
                with connection:
                    connection.recv(100_000)
                    connection.sendall(said)

            if said is not None:
                threading.Thread(target=answer, daemon=True).start()
            return Client(f"http://127.0.0.1:{listening.getsockname()[1]}", "x", timeout=0.5)

        yield client


HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: "


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (None, "does not answer .timed out"),
        (b"", "does not answer"),
        (b"who is there?\r\n\r\n", "does not answer"),
        (HEAD + b"99\r\n\r\n{}", "does not answer"),
        (HEAD + b"6\r\n\r\n<html>", "not a server started by addml serve"),
        (b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 6\r\n\r\n<html>", "502 Bad Gateway"),
    ],
)
def test_whatever_is_wrong_with_a_server_is_one_error(answering, said, words):
    with pytest.raises(ServerError, match=words):
        answering(said).models()


def test_a_server_that_hangs_up_without_a_word(answering, tmp_path):
    (tmp_path / "large.csv").write_bytes(b"a,b\n" + b"1,2\n" * 5_000_000)
    with pytest.raises(ServerError, match="does not answer") as found:
        answering(b"").detect(tmp_path / "large.csv")
    assert found.value.status == 0


def test_half_an_error_is_one(answering):
    with pytest.raises(ServerError, match="401 Unauthorized") as found:
        answering(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 99\r\n\r\n{").models()
    assert found.value.status == 401


def test_half_a_file_is_none(answering, tmp_path):
    with pytest.raises(ServerError, match="more expected"):
        answering(HEAD + b"99\r\n\r\na,b\n").download({"id": "x"}, "scored", tmp_path / "a.csv")
    assert list(tmp_path.iterdir()) == []
