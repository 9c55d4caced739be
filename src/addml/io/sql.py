"""Tables from a database, through SQLAlchemy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa

from addml.io.remote import is_remote
from addml.io.source import ReadError, missing_extra, no_such_file
from addml.io.values import table_from_rows
from addml.text import without_password

ADDRESS = re.compile(r"(?P<scheme>[A-Za-z][\w+.-]*)://")
COMMENT = re.compile(r"\s+|--[^\n]*(\n|$)|/\*.*?\*/", re.DOTALL)
READING = ("select", "with", "values", "table", "show", "from")
NOT_DATABASES = ("ftp", "file", "abfs", "hdfs")


def is_address(source: str) -> bool:
    """Whether the source is an address such as sqlite:///shop.db rather than a file."""
    return ADDRESS.match(source) is not None and not is_remote(source)


def read_sql(address: str, query: str | None) -> tuple[pa.Table, list[str]]:
    """The rows that the query gives; nothing is changed in the database."""
    scheme, shown = (ADDRESS.match(address) or ["", ""])[1].lower(), without_password(address)
    if scheme in NOT_DATABASES:
        raise ReadError(f"{shown}: {scheme} addresses are not read. Download the file and give its path.")
    if not query or not query.strip():
        raise ReadError(f"{shown}: a database needs a query, such as 'select * from orders'.")
    if _first_word(query) not in READING:
        raise ReadError(f"{shown}: the query {query!r} is refused: it must begin with select or with.")
    engine = _engine(address)
    try:
        names, rows = _fetch(engine, query)
    finally:
        engine.dispose()
    table, notes = table_from_rows(names, rows)
    return table, [f"database: {engine.url.render_as_string(hide_password=True)}", f"query: {query}", *notes]


def _engine(address: str) -> Any:
    shown = without_password(address)
    try:
        import sqlalchemy
        from sqlalchemy.exc import ArgumentError, NoSuchModuleError
    except ImportError as error:
        raise missing_extra(f"{shown}: a database", "sql") from error
    try:
        engine = sqlalchemy.create_engine(address)
    except ImportError as error:
        raise ReadError(f"{shown}: the driver of this database is not installed: {error}.") from error
    except (ArgumentError, NoSuchModuleError) as error:
        raise ReadError(f"{shown}: is no address of a database: {without_password(str(error))}.") from error
    _check_sqlite_file(engine)
    return engine


def _check_sqlite_file(engine: Any) -> None:
    """SQLite would create a database that does not exist."""
    name = engine.url.database
    if engine.dialect.name != "sqlite" or not name or name.startswith((":memory:", "file:")):
        return
    if not Path(name).exists():
        raise no_such_file(Path(name))


def _fetch(engine: Any, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    from sqlalchemy.exc import SQLAlchemyError

    shown = engine.url.render_as_string(hide_password=True)
    try:
        with engine.connect() as connection:  # never committed
            if engine.dialect.name == "sqlite":  # whose driver commits `with ... delete` by itself
                connection.exec_driver_sql("pragma query_only = on")
            options = connection.execution_options(stream_results=True, no_parameters=True)
            result = options.exec_driver_sql(query)
            if not result.returns_rows:
                raise ReadError(f"{shown}: the query gives no rows: {query!r}. Write a select.")
            return list(result.keys()), [tuple(row) for row in result]
    except SQLAlchemyError as error:
        reason = getattr(error, "orig", None) or error
        raise ReadError(f"{shown}: the query {query!r} failed: {reason}.") from error


def _first_word(query: str) -> str:
    while (comment := COMMENT.match(query)) is not None:
        query = query[comment.end() :]
    return re.split(r"[^a-z]", query.lstrip("(").lower(), maxsplit=1)[0]
