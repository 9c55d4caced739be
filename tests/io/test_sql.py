"""Scores written back into the database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest

from addml.io.write import WriteError, check_target, write_to_database

pytest.importorskip("sqlalchemy")

PIECES = [
    pa.table({"id": [1, 2], "score": [0.5, float("nan")], "at": [datetime(2026, 1, 2, 3), None], "why": [["a"], None]}),
    pa.table({"id": [3], "score": [2.5], "at": [datetime(2026, 1, 3)], "why": [["b", "c"]]}),
]
STORED = [
    (1, 0.5, "2026-01-02 03:00:00.000000", '["a"]'),
    (2, None, None, None),
    (3, 2.5, "2026-01-03 00:00:00.000000", '["b", "c"]'),
]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table orders (id integer, amount real)")
        connection.execute("insert into orders values (1, 5.0)")
    return path


def rows(base: Path, table: str) -> list[tuple[object, ...]]:
    with sqlite3.connect(base) as connection:
        return connection.execute(f"select * from {table}").fetchall()


def interrupted() -> Iterator[pa.Table]:
    yield PIECES[0]
    raise KeyboardInterrupt


def test_all_pieces_are_stored_and_passed_on(base: Path) -> None:
    assert list(write_to_database(PIECES, f"sqlite:///{base}", "scores")) == PIECES
    assert rows(base, "scores") == STORED


def test_the_rows_of_the_day_before_are_replaced_and_views_stay(base: Path) -> None:
    list(write_to_database(PIECES, f"sqlite:///{base}", "scores"))
    with sqlite3.connect(base) as connection:
        connection.execute("create view strange as select id from scores where score > 1")
    list(write_to_database(PIECES[1:], f"sqlite:///{base}", "main.scores"))
    assert rows(base, "scores") == STORED[2:]
    assert rows(base, "strange") == [(3,)]


def test_an_interruption_leaves_the_old_table(base: Path) -> None:
    list(write_to_database(PIECES[1:], f"sqlite:///{base}", "scores"))
    with pytest.raises(KeyboardInterrupt):
        list(write_to_database(interrupted(), f"sqlite:///{base}", "scores"))
    assert rows(base, "scores") == STORED[2:]


def test_an_interruption_leaves_no_new_table(base: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        list(write_to_database(interrupted(), f"sqlite:///{base}", "scores"))
    assert [name for (name,) in rows(base, "(select name from sqlite_master)")] == ["orders"]


def test_a_table_of_something_else_is_not_replaced(base: Path) -> None:
    with pytest.raises(WriteError, match=r"the table 'orders' holds something else \(id, amount\)"):
        check_target(f"sqlite:///{base}", "orders")
    with pytest.raises(WriteError, match="Name another table, or drop this one"):
        list(write_to_database(PIECES, f"sqlite:///{base}", "orders"))
    assert rows(base, "orders") == [(1, 5.0)]
