"""Tables from a database, and scores back into it, through SQLAlchemy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from addml.io.json import as_json
from addml.io.remote import is_remote
from addml.io.source import ReadError, library, no_such_file
from addml.io.values import table_from_rows
from addml.io.write import WriteError
from addml.text import listed, without_password

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
    shown = engine.url.render_as_string(hide_password=True)
    with _disposed(engine, ReadError, f"{shown}: the query {query!r} failed"), engine.connect() as connection:
        if engine.dialect.name == "sqlite":  # whose driver commits `with ... delete` by itself
            connection.exec_driver_sql("pragma query_only = on")
        options = connection.execution_options(stream_results=True, no_parameters=True)  # never committed
        result = options.exec_driver_sql(query)
        if not result.returns_rows:
            raise ReadError(f"{shown}: the query gives no rows: {query!r}. Write a select.")
        table, notes = table_from_rows(list(result.keys()), [tuple(row) for row in result])
    return table, [f"database: {shown}", f"query: {query}", *notes]


@contextmanager
def _disposed(engine: Any, kind: type[Exception], what: str) -> Iterator[None]:
    """Give back the connections at the end; an error of the database says what failed."""
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except SQLAlchemyError as error:
        raise kind(f"{what}: {getattr(error, 'orig', None) or error}.") from error
    finally:
        engine.dispose()


def _engine(address: str) -> Any:
    shown = without_password(address)
    sqlalchemy = library("sqlalchemy", "sql", f"{shown}: a database")
    try:
        engine = sqlalchemy.create_engine(address)
    except ImportError as error:
        raise ReadError(f"{shown}: the driver of this database is not installed: {error}.") from error
    except (sqlalchemy.exc.ArgumentError, sqlalchemy.exc.NoSuchModuleError) as error:
        raise ReadError(f"{shown}: is no address of a database: {without_password(str(error))}.") from error
    name: Any = engine.url.database
    in_file = engine.dialect.name == "sqlite" and name and not name.startswith((":memory:", "file:"))
    if in_file and not Path(name).exists():  # SQLite would create it
        raise no_such_file(Path(name))
    return engine


def _first_word(query: str) -> str:
    while (comment := COMMENT.match(query)) is not None:
        query = query[comment.end() :]
    return re.split(r"[^a-z]", query.lstrip("(").lower(), maxsplit=1)[0]


# Scores back into the database --------------------------------------------------------------------------------


def stored(pieces: Iterable[pa.Table], address: str, table: str) -> Iterator[pa.Table]:
    """The pieces, each written into the database on its way, all in one transaction: a failure changes nothing.

    A table that is there must have the same columns; its rows are replaced, so that indexes, grants and views stay.
    """
    coming = iter(pieces)
    first = next(coming)
    check_target(address, table, first.schema.names)
    engine, target = _engine(address), _target(table, first.schema)
    if engine.dialect.name == "sqlite":  # its driver would begin only at the first row, behind the creation of a table
        from sqlalchemy import event

        event.listen(engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("begin"))
    what = f"{without_password(address)}: the table {table!r} cannot be written"
    with _disposed(engine, WriteError, what), engine.begin() as connection:
        target.create(connection, checkfirst=True)
        connection.execute(target.delete())
        for piece in chain([first], coming):
            rows = [{name: _plain(value) for name, value in row.items()} for row in piece.to_pylist()]
            connection.execute(target.insert(), rows)
            yield piece


def check_target(address: str, table: str, names: Iterable[str] = ("score",)) -> None:
    """An error where there is a table of this name that has not these columns, such as the one that is read."""
    engine, shown = _engine(address), without_password(address)
    with _disposed(engine, WriteError, f"{shown}: cannot be opened"):
        import sqlalchemy

        inspector, (schema, _, name) = sqlalchemy.inspect(engine), table.rpartition(".")
        found = inspector.has_table(name, schema or None)
        known = [one["name"] for one in inspector.get_columns(name, schema or None)] if found else []
    if found and not set(names) <= set(known):
        raise WriteError(
            f"{shown}: the table {table!r} holds something else ({listed(known, 8)}) and is not replaced; name another "
            "table, or drop this one."
        )


def _target(table: str, columns: pa.Schema) -> Any:
    import sqlalchemy as sql

    def type_of(kind: pa.DataType) -> Any:
        types: dict[Any, Any] = {
            pa.types.is_boolean: sql.Boolean(),
            pa.types.is_integer: sql.BigInteger(),
            pa.types.is_floating: sql.Double(),
            pa.types.is_timestamp: sql.DateTime(timezone=getattr(kind, "tz", None) is not None),
            pa.types.is_date: sql.Date(),
            pa.types.is_time: sql.Time(),
        }
        return next((found for is_kind, found in types.items() if is_kind(kind)), sql.Text())

    schema, _, name = table.rpartition(".")
    own = [sql.Column(one.name, type_of(one.type)) for one in columns]
    return sql.Table(name, sql.MetaData(), *own, schema=schema or None)


def _plain(value: Any) -> Any:
    """A value as a database takes it: no NaN, and nested values as JSON."""
    if isinstance(value, float):
        return None if value != value else value
    return as_json(value) if isinstance(value, list | dict) else value
