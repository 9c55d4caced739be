"""Rows that are known by ids and conditions: which they are, what is hidden, and what is wrong with a file."""

from datetime import date

import numpy as np
import pyarrow as pa
import pytest

from addml.errors import AddmlError
from addml.inputs.table import Columns
from addml.pipeline.labels import Clause, KnownRows, TrainingLabels, parse_condition
from addml.pipeline.options import Options

TABLE = pa.table(
    {
        "order": ["a1", "a2", "a3", None],
        "store": ["Turin", "Bergen", "Turin", None],
        "sales": [10.0, 20.0, 30.0, None],
        "zip": ["00501", "501", "10001", ""],
        "day": pa.array(["2026-01-31", "2026-02-01", "2026-02-02", None]).cast(pa.timestamp("s")),
    }
)


def known(tmp_path, *entries, today=date(2026, 6, 1)):
    (tmp_path / "known.toml").write_text("\n".join(f"[[known]]\n{entry}" for entry in entries))
    return KnownRows.of([str(tmp_path / "known.toml")], "--known-normal", today).with_ids(["order"])


@pytest.mark.parametrize(
    ("text", "clauses"),
    [
        ("sales > 12", [("sales", ">", "12")]),
        ("store = Turin and sales<=12.5", [("store", "=", "Turin"), ("sales", "<=", "12.5")]),
        ("store = New York AND day >= 2026-01-31", [("store", "=", "New York"), ("day", ">=", "2026-01-31")]),
        ("'net = gross' != \"black and white\"", [("net = gross", "!=", "black and white")]),
        ("brand = android and note = ''", [("brand", "=", "android"), ("note", "=", "")]),
        ("__import__('os').system('ls') = 1", None),
        ("sales", None),
        ("sales > ", None),
        ("sales > 1 and", None),
        ("sales > 1 or sales < 0", None),
        ("", None),
    ],
)
def test_a_condition_is_parsed_and_never_evaluated(text, clauses):
    if clauses is not None:
        assert parse_condition(text) == tuple(Clause(*one) for one in clauses)
        return
    with pytest.raises(AddmlError, match="is not a condition"):
        parse_condition(text)


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("store = Turin and sales > 10", [3]),
        ("store != Turin", [2, 4]),
        ("sales = 20", [2]),
        ("sales != 20", [1, 3, 4]),
        ("sales < 1e9", [1, 2, 3]),  # a missing value is not below anything
        ("sales = ''", [4]),
        ("zip = 00501", [1]),  # a code, not the number 501
        ("zip > 600", [3]),
        ("zip = ''", [4]),
        ("day >= 2026-02-01", [2, 3]),
    ],
)
def test_rows_of_a_condition(tmp_path, condition, rows):
    found = known(tmp_path, f'when = "{condition}"\nreason = "so"').codes(TABLE)
    assert (np.flatnonzero(found == 0) + 1).tolist() == rows
    np.testing.assert_array_equal(known(tmp_path, f'when = "{condition}"\nreason = "so"').codes(TABLE[:0]), [])


def test_numbers_are_compared_as_the_model_reads_them(tmp_path):
    table = pa.table({"sales": [f"{thousands},{n:03}.00" for thousands in (1, 2, 3) for n in range(10)]})
    found = known(tmp_path, 'when = "sales > 2500"\nreason = "so"').codes(table, Columns.fit(table))
    assert np.flatnonzero(found == 0).tolist() == list(range(20, 30))


def test_the_first_entry_counts_and_ids_are_one_or_several(tmp_path):
    entries = (
        'id = "a2"\nreason = "first"',
        'when = "sales > 5"\nreason = "second"',
        'id = ["a1", "a9"]\nreason = "third"',
    )
    assert known(tmp_path, *entries).codes(TABLE).tolist() == [1, 0, 1, -1]
    direct = KnownRows.of(["a1, a3"], "--known-normal").with_ids(["store", "order"], by=["store"])
    assert direct.codes(TABLE).tolist() == [0, -1, 1, -1]
    with pytest.raises(AddmlError, match=r"--known-normal a1: needs an id column; name it with --id NAME"):
        KnownRows.of(["a1"], "--known-normal").codes(TABLE)


def test_an_entry_lasts_until_the_day_it_expires(tmp_path):
    entry = 'when = "sales > 5"\nreason = "rebuilding"\nexpires = 2026-06-01'
    assert len(known(tmp_path, entry).entries) == 1
    with pytest.warns(
        UserWarning, match=r"entry 1 \(rebuilding\) expired on 2026-06-01 and is ignored: renew or remove it"
    ):
        assert known(tmp_path, entry, today=date(2026, 6, 2)).entries == ()


def test_what_is_hidden_is_counted_and_what_is_stranger_than_the_example_is_a_warning(tmp_path):
    entries = 'when = "store = Turin"\nreason = "rebuilding"\nscore = 3', 'id = "a9"\nreason = "long ago"'
    one = known(tmp_path, *entries)
    codes = one.codes(TABLE)
    (found,) = one.hidden(codes, np.array([2.5, 9.0, 2.0, 0.1]), 1.0)
    assert (found.rows, found.row, found.score, found.reason) == (2, 1, 2.5, "rebuilding")
    assert one.hidden(codes, np.array([0.5, 9.0, 0.2, 0.1]), 1.0) == ()
    with pytest.warns(UserWarning, match=r"hides row 3, score 4: stranger than its example, 3"):
        one.hidden(codes, np.array([2.5, 9.0, 4.0, 0.1]), 1.0)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[[known", "is not a TOML file"),
        ("", r"must hold \[\[known\]\] entries and nothing else"),
        ("colour = 1", r"must hold \[\[known\]\] entries"),
        ('[[known]]\nwen = "a = 1"', r"entry 1: 'wen' is not one of id, when, .*Did you mean 'when'"),
        ('[[known]]\nreason = "x"', "entry 1: needs either id or when"),
        ('[[known]]\nid = "a"\nwhen = "a = 1"\nreason = "x"', "entry 1: needs either id or when"),
        ('[[known]]\nid = "a"', "entry 1: needs a reason"),
        (
            '[[known]]\nid = "a"\nreason = "x"\nexpires = "2026"',
            "entry 1: expires = '2026': must be a date without",
        ),
        (
            '[[known]]\nid = "a"\nreason = "x"\nscore = "high"',
            "entry 1: score = 'high': must be a number, the score of the entry's example",
        ),
        ('[[known]]\nwhen = "sales high"\nreason = "x"', "entry 1: when = 'sales high' is not a condition"),
    ],
)
def test_a_wrong_file_is_said_with_the_entry(tmp_path, content, words):
    (tmp_path / "known.toml").write_text(content)
    with pytest.raises(AddmlError, match=words):
        KnownRows.of([str(tmp_path / "known.toml")], "--known-normal")
    with pytest.raises(AddmlError, match=r"none\.toml: cannot be read: No such file"):
        KnownRows.of(["none.toml"], "--known-normal")


def test_a_number_column_compared_with_a_text_is_said(tmp_path):
    with pytest.raises(AddmlError, match="sales > many: 'sales' holds numbers; compare it with a number"):
        known(tmp_path, 'when = "sales > many"\nreason = "so"').codes(TABLE)


def test_training_learns_from_ids_conditions_and_row_numbers(tmp_path):
    (tmp_path / "bad.toml").write_text('[[known]]\nwhen = "sales > 25"\nreason = "fraud"')
    options = Options(known_anomalies=(str(tmp_path / "bad.toml"),), known_normal=("2", "id:a1"))
    labels = TrainingLabels.of(options).in_table(TABLE.column_names, ["order"], "a.csv")
    assert labels.columns == ["order", "sales", "order"]
    assert labels.of_rows(TABLE, np.arange(4), 4).tolist() == [0, 0, 1, -1]
    assert labels.is_known(TABLE.to_batches()[0], 0).tolist() == [True, True, True, False]
    with pytest.raises(AddmlError, match=r"has no column 'sales' \(.*bad.toml, entry 1\)"):
        TrainingLabels.of(options).in_table(["order"], ["order"], "a.csv")
    both = TrainingLabels.of(Options(known_anomalies=("a1",), known_normal=("id:a1",))).in_table(
        ["order"], ["order"], ""
    )
    with pytest.raises(AddmlError, match="row 1 is in both"):
        both.of_rows(TABLE, np.arange(4), 4)
    wrong = TrainingLabels.of(Options(known_normal=("a1,b1",))).in_table(["order"], ["order"], "")
    with pytest.raises(AddmlError, match="--known-normal b1: no row has this id"):
        wrong.of_rows(TABLE, np.arange(4), 4)
