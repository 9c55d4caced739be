"""Tables from a database, and scores back into it, through SQLAlchemy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from addml.io.json import as_json
from addml.io.remote import is_remote
from addml.io.source import ReadError, missing_extra, no_such_file
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


# Scores back into the database --------------------------------------------------------------------------------


def stored(pieces: Iterable[pa.Table], address: str, table: str) -> Iterator[pa.Table]:
    """The pieces, each written into the database on its way, all in one transaction: a failure changes nothing.

    A table that is there must have the same columns; its rows are replaced, so that indexes, grants and views stay.
    """
    from sqlalchemy.exc import SQLAlchemyError

    engine, coming = _engine(address), iter(pieces)
    first = next(coming)
    target = _target(table, first.schema)
    _begin_by_hand(engine)
    try:
        check_target(address, table, first.schema.names)
        with engine.begin() as connection:
            target.create(connection, checkfirst=True)
            connection.execute(target.delete())
            for piece in chain([first], coming):
                connection.execute(target.insert(), [_plain(row) for row in piece.to_pylist()])
                yield piece
    except SQLAlchemyError as error:
        reason = getattr(error, "orig", None) or error
        raise WriteError(f"{without_password(address)}: the table {table!r} cannot be written: {reason}.") from error
    finally:
        engine.dispose()


def check_target(address: str, table: str, names: Iterable[str] = ("score",)) -> None:
    """An error where there is a table of this name that has not these columns, such as the one that is read."""
    import sqlalchemy

    engine, (schema, name) = _engine(address), _parts(table)
    try:
        inspector = sqlalchemy.inspect(engine)
        held = inspector.get_columns(name, schema) if inspector.has_table(name, schema) else None
    except sqlalchemy.exc.SQLAlchemyError as error:
        raise WriteError(f"{without_password(address)}: cannot be opened: {error}.") from error
    finally:
        engine.dispose()
    known = [column["name"] for column in held or ()]
    if held is not None and not set(names) <= set(known):
        raise WriteError(
            f"{without_password(address)}: the table {table!r} holds something else ({listed(known, 8)}) and is not "
            "replaced; name another table, or drop this one."
        )


def _parts(table: str) -> tuple[str | None, str]:
    schema, _, name = table.rpartition(".")
    return schema or None, name


def _begin_by_hand(engine: Any) -> None:
    """SQLite's driver begins a transaction only at the first row, behind the creation of a table."""
    from sqlalchemy import event

    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("begin"))


def _target(table: str, columns: pa.Schema) -> Any:
    import sqlalchemy

    schema, name = _parts(table)
    own = [sqlalchemy.Column(one.name, _type(one.type)) for one in columns]
    return sqlalchemy.Table(name, sqlalchemy.MetaData(), *own, schema=schema)


def _type(kind: pa.DataType) -> Any:
    import sqlalchemy

    known = {
        pa.types.is_boolean: sqlalchemy.Boolean(),
        pa.types.is_integer: sqlalchemy.BigInteger(),
        pa.types.is_floating: sqlalchemy.Double(),
        pa.types.is_timestamp: sqlalchemy.DateTime(timezone=getattr(kind, "tz", None) is not None),
        pa.types.is_date: sqlalchemy.Date(),
        pa.types.is_time: sqlalchemy.Time(),
    }
    return next((found for is_kind, found in known.items() if is_kind(kind)), sqlalchemy.Text())


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """The values of a row as a database takes them: no NaN, and nested values as JSON."""
    return {name: _plain_value(value) for name, value in row.items()}


def _plain_value(value: Any) -> Any:
    if isinstance(value, float):
        return None if value != value else value
    return as_json(value) if isinstance(value, list | dict) else value
