"""The recipes of docs/cluster.md for other engines; the one for Spark where it is installed, with Java."""

import sys

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from addml import ADDML
from addml.cluster import BatchScorer

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def scorer(rows, tmp_path_factory):
    folder = tmp_path_factory.mktemp("recipes") / "model"
    table = parquet.read_table(rows)
    ADDML(epochs=1, members=1, random_state=0).fit(table.drop(["id"])).save(folder)
    return BatchScorer.of(folder)


@pytest.fixture(scope="module")
def expected(rows, scorer):
    """The scores by the rows' ids."""
    table = scorer(parquet.read_table(rows))
    return dict(zip(table["id"].to_pylist(), table["score"].to_pylist(), strict=True))


def test_dask(rows, scorer, expected):
    dd = pytest.importorskip("dask.dataframe", reason="dask is not installed: make test-cluster installs it")
    frame = dd.read_parquet(rows)
    scored = frame.map_partitions(scorer, meta=scorer(frame._meta)).compute(scheduler="synchronous")
    assert dict(zip(scored["id"], scored["score"], strict=True)) == expected


def test_daft(rows, scorer, expected):
    daft = pytest.importorskip("daft", reason="daft is not installed: make test-cluster installs it")
    frame = daft.read_parquet(f"{rows}/*.parquet")
    names = frame.column_names

    @daft.udf(return_dtype=daft.DataType.float64())
    def score(*columns):
        table = pa.table([column.to_arrow() for column in columns], names=names)
        return scorer(table)["score"].combine_chunks()

    scored = frame.with_column("score", score(*[frame[name] for name in names])).to_arrow()
    assert dict(zip(scored["id"].to_pylist(), scored["score"].to_pylist(), strict=True)) == expected


def test_duckdb(rows, scorer, expected):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed: make test-cluster installs it")
    batches = duckdb.sql(f"SELECT * FROM '{rows}/*.parquet'").to_arrow_reader(1000)
    scored = pa.Table.from_batches(scorer.stream(batches))
    top = duckdb.sql("SELECT id, score FROM scored ORDER BY score DESC LIMIT 3").fetchall()
    assert top == sorted(expected.items(), key=lambda one: -one[1])[:3]
    np.testing.assert_array_equal(np.sort(scored["score"]), np.sort(list(expected.values())))


def test_spark(rows, scorer, expected, tmp_path, monkeypatch):
    sql = pytest.importorskip("pyspark.sql", reason="pyspark and Java are not installed")
    from pyspark.sql.pandas.types import from_arrow_schema

    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    spark = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    frame = spark.read.parquet(str(rows))
    schema = from_arrow_schema(scorer(pa.Table.from_pandas(frame.limit(1).toPandas())).schema)
    frame.mapInArrow(scorer.stream, schema).write.parquet(str(tmp_path / "scored"))
    spark.stop()
    scored = parquet.read_table(tmp_path / "scored")
    assert dict(zip(scored["id"].to_pylist(), scored["score"].to_pylist(), strict=True)) == expected
