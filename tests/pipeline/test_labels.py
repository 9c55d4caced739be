"""What people know of rows reaches training, whatever part of a table is trained on."""

import numpy as np
import pyarrow as pa
import pytest

from addml.errors import AddmlError
from addml.inputs.disk import draw
from addml.pipeline.labels import TrainingLabels
from addml.pipeline.options import Options

CHECKED = ["yes", None, "", "no", None, "yes"]


def answers(**given):
    return TrainingLabels.of(Options(file="a.csv", **given))


@pytest.fixture(name="table")
def six_rows():
    return pa.table({"x": range(6), "checked": CHECKED})


def test_a_column_and_numbers_say_what_is_known(table):
    """Row 2 is known by its number, row 4 by both: what was said last counts."""
    found = answers(train_labels="checked", known_anomalies=("2, 4",), known_normal=("3",))
    assert found.rows == {1: 1, 3: 1, 2: 0}
    marks = answers(train_labels="checked", known_anomalies=("2",)).of_rows(table, np.arange(6), 6)
    assert marks.tolist() == [1, 1, -1, 0, -1, 1]
    assert answers(train_labels="checked", known_normal=("1", "6")).of_rows(table, np.arange(6), 6).tolist() == [
        0, -1, -1, 0, -1, 0,
    ]  # fmt: skip
    assert answers().of_rows(table, np.arange(6), 6) is None


def test_rows_that_are_known_come_first(table):
    """Of six rows three are drawn: those that have a label, whatever the seed, in batches of any size."""
    known = answers(train_labels="checked")
    for seed in range(20):
        _, places, rows = draw(table.to_batches(max_chunksize=2), 3, seed, known.is_known)
        assert places.tolist() == [0, 3, 5]
        assert rows == 6
    by_number = answers(known_anomalies=("3",))
    drawn = {tuple(draw(table.to_batches(max_chunksize=4), 2, seed, by_number.is_known)[1]) for seed in range(40)}
    assert all(2 in places for places in drawn)
    assert {place for places in drawn for place in places} == set(range(6))  # the others are drawn as before


def test_labels_go_to_the_rows_that_were_drawn(table):
    some = table.take([0, 3, 5])
    marks = answers(known_anomalies=("6",), known_normal=("4",)).of_rows(some, np.array([0, 3, 5]), 6)
    assert marks.tolist() == [-1, 0, 1]


@pytest.mark.parametrize(
    ("learning", "words"),
    [
        ({"known_anomalies": ("two",)}, "--known-anomalies two: needs an id column; name it with --id"),
        ({"known_normal": (",",)}, "--known-normal ,: must be row numbers, ids or a .toml file"),
        ({"known_normal": ("0",)}, "0 is not a row number"),
        ({"known_normal": ("-1",)}, "-1 is not a row number"),
        ({"known_anomalies": ("1,2",), "known_normal": ("2",)}, "row 2 is in both"),
        ({"known_anomalies": ("7",)}, r"--known-anomalies: there is no row 7; the table has 6 rows"),
        ({"known_anomalies": ("1,2,3,4,5",)}, "training needs at least two rows that are not anomalies"),
    ],
)
def test_answers_that_make_no_sense(table, learning, words):
    with pytest.raises(AddmlError, match=words):
        answers(**learning).of_rows(table, np.arange(6), 6)


def test_more_answers_than_rows_to_train_on(table):
    known = answers(known_anomalies=("1",), known_normal=("2,3",))
    some, places, rows = draw(table.to_batches(), 2, 0, known.is_known)
    with pytest.raises(AddmlError, match=r"--sample 2 is too small for row \d"):
        known.of_rows(some, places, rows)
