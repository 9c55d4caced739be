"""Which columns are named, checked where the score is simple enough to work out by hand."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from addml.detector import ADDML
from addml.encoders import MLPNetwork
from addml.explain import Reason, baseline_row, groups, reasons
from addml.model import Model
from addml.preprocessing.profile import ColumnProfile
from addml.scoring.scorer import Center, EnsembleScale
from tests.explain.conftest import as_they_are, random_model, vectorizer_with

NAMES = ("a", "b", "c", "d")


def model_of(matrix, activation="linear", center=0.0):
    """The score |activation(x matrix) - center|^2."""
    matrix = np.asarray(matrix, np.float32)
    d, w = matrix.shape
    encoder = MLPNetwork((d, w), [activation], np.concatenate([matrix.ravel(), np.zeros(w, np.float32)])[None])
    scale = EnsembleScale(*np.ones((3, 1, 1)))
    center = np.broadcast_to(np.asarray(center, np.float32), (1, w))
    return Model(vectorizer_with(as_they_are(d)), encoder, "sqeuclidean", Center(), {"center": center}, scale)


def explained(model, rows, bounds=2.0, **how):
    """The reasons of rows whose columns are usually 0, mostly within plus and minus their bound."""
    rows = np.atleast_2d(np.asarray(rows, np.float32))
    bounds = np.broadcast_to(bounds, rows.shape[1])
    usual = [
        ColumnProfile(name, "number", -bound, 0.0, bound) for name, bound in zip(NAMES, bounds.tolist(), strict=False)
    ]
    values = {column.column: rows[:, i].tolist() for i, column in enumerate(usual)}
    baseline = np.zeros(rows.shape[1], np.float32)
    return reasons(model, rows, baseline, range(rows.shape[1]), usual, values, **how)


SQUARES = model_of(np.eye(4))  # the score is the sum of the squares: a column's contribution is its square


def test_the_largest_contribution_comes_first_with_its_share():
    (found,) = explained(SQUARES, [3, 0.1, -6, 0])
    assert [reason.words for reason in found] == ["c -6, far below the usual 0", "a 3, above the usual -2 to 2"]
    assert [reason.columns for reason in found] == [("c",), ("a",)]
    assert [reason.summary for reason in found] == ["c unusually low", "a unusually high"]
    np.testing.assert_allclose([reason.share for reason in found], [36 / 45.01, 9 / 45.01], rtol=1e-5)


def test_less_than_a_tenth_of_the_score_is_not_said():
    (found,) = explained(SQUARES, [10, 3.6, 3.1, 0])  # of 122.57
    assert [reason.column for reason in found] == ["a", "b"]


def test_at_most_so_many_are_said():
    assert [len(explained(SQUARES, [3, 4, 5, 6], most=most)[0]) for most in (1, 2, 3, 4)] == [1, 2, 3, 4]
    assert [reason.column for reason in explained(SQUARES, [3, 4, 5, 6])[0]] == ["d", "c", "b"]


def test_unusual_values_come_first_then_the_ordinary_ones_together():
    (found,) = explained(SQUARES, [6, 5, 4, 0], bounds=[7, 2, 7, 2])
    assert [reason.words for reason in found] == ["b 5, far above the usual 0", "unusual combination of a and c"]
    assert found[1].columns == ("a", "c")
    np.testing.assert_allclose([reason.share for reason in found], [25 / 77, 52 / 77], rtol=1e-5)


def test_columns_are_named_by_what_they_add_and_their_summary_is_the_same():
    up, down = (explained(SQUARES, row, bounds=9)[0][0] for row in ([3, 4, 5, 1], [5, 4, 3, 1]))
    assert (up.words, down.words) == ("unusual combination of c, b and a", "unusual combination of a, b and c")
    assert up.columns == ("c", "b", "a")
    assert up.summary == down.summary == "unusual combination of a, b and c"


def test_a_share_is_never_more_than_all():
    # the usual row scores 1, this row 9, and 0 without b
    (found,) = explained(model_of(np.eye(4), center=[1, 0, 0, 0]), [1, 3, 0, 0])
    assert [(reason.column, reason.share) for reason in found] == [("b", 1.0)]


def test_one_ordinary_value_is_unusual_for_its_row():
    (found,) = explained(SQUARES, [1.5, 0.1, 0, 0])
    assert [reason.words for reason in found] == ["a 1.5, unusual given the other columns"]
    (found,) = explained(model_of([[1]]), [1.5])
    assert [reason.words for reason in found] == ["a 1.5, unusual given the other columns"]


def test_where_no_column_carries_a_tenth_the_three_largest_are_named():
    # of 24 columns each adds a 24th, three of them a little more
    names = [f"c{place:02}" for place in range(24)]
    rows = np.ones((1, 24), np.float32)
    rows[0, [5, 9, 20]] = 1.1, 1.2, 1.3
    usual = [ColumnProfile(name, "number", -2.0, 0.0, 2.0) for name in names]
    values = {name: rows[:, place].tolist() for place, name in enumerate(names)}
    (found,) = reasons(model_of(np.eye(24)), rows, np.zeros(24, np.float32), range(24), usual, values)
    assert [reason.words for reason in found] == ["unusual as a whole, mostly in c20, c09 and c05"]
    assert found[0].share == pytest.approx((1.1**2 + 1.2**2 + 1.3**2) / (21 + 1.1**2 + 1.2**2 + 1.3**2), rel=1e-5)


def test_columns_none_of_which_explains_a_row_alone_are_named():
    model = model_of([[5], [5], [5], [0]], "tanh")  # any one of the three keeps the score at 1 in float32
    (found,) = explained(model, [3, 3, 3, 0])
    assert sum(one.share for one in found) == pytest.approx(1)
    assert {column for one in found for column in one.columns} <= {"a", "b", "c"}


def test_nothing_is_unusual_about_the_usual_row():
    assert explained(SQUARES, [0, 0, 0, 0]) == [(Reason((), 0.0, "nothing unusual", "nothing unusual"),)]


def test_no_rows_have_no_reasons():
    assert explained(SQUARES, np.empty((0, 4))) == []
    assert explained(model_of([[1]]), np.empty((0, 1))) == []


def test_many_rows_are_explained_as_each_alone():
    random = np.random.default_rng(3)
    model = random_model(4, members=3)
    rows = 2 * random.standard_normal((700, 4))
    together = explained(model, rows, threads=2)
    for row in range(0, 700, 50):
        (alone,) = explained(model, rows[row])
        assert [reason.words for reason in alone] == [reason.words for reason in together[row]]
        np.testing.assert_allclose([r.share for r in alone], [r.share for r in together[row]], atol=1e-4)
        assert all(0 <= reason.share <= 1 for reason in alone)


@pytest.fixture(scope="module")
def mixed():
    """A detector of amounts, ages, weights that follow the ages, and countries; and how to explain raw rows."""
    random, n = np.random.default_rng(0), 3000
    levels = ["DE", "FR", "XK"]
    amount, age = np.exp(random.normal(3.4, 0.6, n)), random.normal(40, 10, n)
    weight, country = 1.5 * age + random.normal(0, 2, n), random.choice(3, n, p=[0.6, 0.399, 0.001])
    origins = [0, 1, 2, 3, 3, 3, 1]  # the last is the gap flag of the ages

    def numbers(rows):
        return np.array([[*row[:3], *(row[3] == level for level in levels)] for row in rows], np.float64)

    rows = [list(row) for row in zip(amount, age, weight, np.array(levels)[country], strict=True)]
    for row in rows[::100]:
        row[1] = np.nan
    X = numbers(rows)
    detector = ADDML(random_state=0, device="cpu").fit(X)
    prepare = detector.model_.features.transform
    columns = [
        ColumnProfile(name, "number", *np.nanquantile(X[:, i], [0.05, 0.5, 0.95]).tolist(), gaps=0.01)
        for i, name in enumerate(["amount", "age", "weight"])
    ]
    shares = {level: float((country == i).mean()) for i, level in enumerate(levels)}
    usual = [*columns, ColumnProfile("country", "category", levels=shares)]
    baseline = baseline_row(prepare(X), origins)

    def explain(rows):
        values = {column.column: [row[i] for row in rows] for i, column in enumerate(usual)}
        return reasons(detector.model_, prepare(numbers(rows)), baseline, origins, usual, values)

    return explain


def test_planted_rows_of_a_mixed_table_get_the_words_one_expects(mixed):
    found = mixed(
        [
            [41 * 30, 40, 60, "DE"],
            [30, 40, 60, "ZZ"],
            [30, 40, 60, "XK"],
            [30, 27, 76, "DE"],  # light and heavy enough for some, not for each other
            [30, None, 60, "DE"],
            [30, 40, -60, "DE"],
        ]
    )
    summaries = [of_row[0].summary for of_row in found]
    assert summaries[:3] == ["amount unusually high", "country with a new value", "country with a rare value"]
    assert summaries[3].endswith(" age and weight")
    assert summaries[4:] == ["age is missing", "weight negative"]
    assert found[0][0].words.startswith("amount 1230, far above the usual ")
    assert found[1][0].words == "country 'ZZ', never seen in training"


# Groups -----------------------------------------------------------------------------------------------------


def reason(*columns, share=0.5, words="", summary=None):
    return Reason(columns, share, words, summary or f"{columns[0]} unusually high")


def test_rows_of_which_the_same_is_said_first_stand_together():
    found = [
        (reason("amount", share=0.9, words="amount 1230, far above the usual 30"), reason("age", share=0.2)),
        (reason("country", summary="country with a new value"),),
        (reason("amount", share=0.9, words="amount 360, far above the usual 30"),),
        (reason("amount", share=0.5), reason("age", share=0.4, summary="age missing")),
        (reason("country", summary="country with a rare value"),),
        (reason("age", share=0.5, summary="age missing"), reason("amount", share=0.4)),
        (),
        (reason("amount"),),
    ]
    assert groups(found) == (
        (("amount",), "amount unusually high", (0, 2, 7)),
        (("amount", "age"), "amount unusually high; age missing", (3, 5)),
    )


def test_a_pair_that_no_other_row_has_joins_the_rows_of_its_first_reason():
    found = [
        (reason("a"),),
        (reason("a"), reason("b")),
        (reason("c", "d", summary="unusual combination of c and d"),),
        (reason("e"),),
    ]
    assert groups(found) == ((("a",), "a unusually high", (0, 1)),)


def test_broken_pairs_and_rows_without_columns():
    whole = Reason((), 1.0, "unusual as a whole", "unusual as a whole")
    pair = reason("c", "d", summary="unusual combination of c and d")
    assert groups([(pair,), (whole,), (pair, reason("c", share=0.1)), (whole,)]) == (
        (("c", "d"), "unusual combination of c and d", (0, 2)),
    )
    assert groups([]) == ()


def test_a_group_never_contradicts_a_member():
    up, down = ((reason("a", summary=f"a unusually {side}"),) for side in ("high", "low"))
    assert groups([up, down, up, down, up]) == (
        (("a",), "a unusually high", (0, 2, 4)),
        (("a",), "a unusually low", (1, 3)),
    )
    assert groups([up, down]) == ()


# Correlated columns -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def machine():
    """Readings of three correlated gauges, one that goes down as they go up, and two others."""
    random = np.random.default_rng(0)
    load = random.normal(size=1000)
    gauges = [50 + 10 * load + random.normal(size=1000) for _ in range(3)]
    X = pd.DataFrame({"flow": gauges[0], "power": gauges[1], "heat": gauges[2], "reserve": 200 - 5 * gauges[0]})
    X["reserve"] += random.normal(size=1000)
    X["noise"], X["other"] = random.normal(size=(2, 1000))
    return ADDML(random_state=0, device="cpu").fit(pa.Table.from_pandas(X)), X


def test_correlated_columns_that_moved_together_are_one_reason(machine):
    detector, X = machine
    row = X.median().to_frame().T
    row[["flow", "power", "heat", "reserve"]] = [120.0, 120.0, 120.0, -400.0]
    (found,) = detector_reasons(detector, row)
    assert set(found[0].columns) <= {"flow", "power", "heat", "reserve"}
    assert len(found[0].columns) == 3
    assert ", and with it " in found[0].words
    assert found[0].share > 0.4
    assert not any(set(one.columns) & {"flow", "power", "heat", "reserve"} for one in found[1:])


def test_correlated_columns_that_moved_apart_are_named_each(machine):
    detector, X = machine
    row = X.median().to_frame().T
    row[["flow", "power"]] = [120.0, -20.0]
    (found,) = detector_reasons(detector, row)
    assert [one.columns for one in found[:2]] in ([("flow",), ("power",)], [("power",), ("flow",)])


def detector_reasons(detector, frame):
    from addml.pipeline.batches import features_of, reasons_for

    batch = pa.RecordBatch.from_pandas(frame, preserve_index=False)
    return reasons_for(detector.model_, batch, features_of(detector.model_, batch, 0), 3)


def test_a_number_far_outside_its_range_is_named_however_little_it_adds():
    rows = np.array([[5.0, 4.0, 3.0, 0.5]], np.float32)
    usual = [ColumnProfile(name, "number", low=-9.0, middle=0.0, high=9.0) for name in "abc"]
    usual.append(ColumnProfile("d", "number", low=-0.1, middle=0.0, high=0.1))
    values = {name: rows[:, place].tolist() for place, name in enumerate("abcd")}
    (found,) = reasons(SQUARES, rows, np.zeros(4, np.float32), range(4), usual, values, most=3)
    assert found[0].columns == ("d",)
    assert found[0].words.startswith("d 0.5, far above the usual 0")


def test_a_gross_value_comes_before_others_that_add_somewhat_more():
    rows = np.array([[5.0, 4.0, 0.0, 0.0]], np.float32)
    usual = [ColumnProfile(name, "number", low=-2.0, middle=0.0, high=2.0) for name in "acd"]
    usual.insert(1, ColumnProfile("b", "number", low=-0.1, middle=0.0, high=0.1))
    values = {name: rows[:, place].tolist() for place, name in enumerate("abcd")}
    (found,) = reasons(SQUARES, rows, np.zeros(4, np.float32), range(4), usual, values)
    assert [one.columns for one in found] == [("b",), ("a",)]  # 16 of 41, and 25 of 41
