"""Words and reasons of many rows, against an independent implementation."""

from datetime import date, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from addml.explain import Reason, attributions, reason_texts, reasons
from addml.explain.contributions import explained
from addml.explain.reasons import unusual, unusual_together
from addml.preprocessing.profile import ColumnProfile
from addml.scoring import Views
from tests.explain import row_by_row
from tests.explain.conftest import random_model

SIZES = st.floats(1e-3, 1e5)
ROUND = st.integers(-5000, 5000).map(lambda whole: whole / 8)  # often an end, often in the middle between two texts
NUMBERS = st.one_of(st.none(), st.just(float("nan")), ROUND, st.floats(-1e6, 1e6), st.floats(-1e18, 1e18))
GAPS = st.sampled_from([0.0, 0.02, 0.5, 0.9])
MOMENTS = st.datetimes(datetime(1990, 1, 1), datetime(2050, 1, 1))
LEVELS = st.sampled_from(["a", "b", "c", "d e", "", " ", "long " * 20, "Ä"])


@st.composite
def number_columns(draw):
    low, middle, high = sorted(draw(st.tuples(*[st.one_of(ROUND, SIZES)] * 3)))
    from_zero = (0.0, abs(middle), abs(middle) + abs(high))
    ends = draw(st.sampled_from([(low, middle, high), from_zero, (low, None, high), (None, None, None)]))
    return ColumnProfile("n", "number", *ends, gaps=draw(GAPS))


@st.composite
def level_columns(draw):
    shares = draw(st.dictionaries(LEVELS, st.sampled_from([0.6, 0.2, 0.1, 0.04, 0.001]), max_size=5))
    return ColumnProfile("c", "category", levels=shares, unlisted=draw(st.sampled_from([0, 0.3])), gaps=draw(GAPS))


@st.composite
def truth_columns(draw):
    true = draw(st.sampled_from([0.0, 0.001, 0.2, 0.5, 0.98]))
    levels = {word: share for word, share in (("true", true), ("false", 1 - true)) if share}
    return ColumnProfile("t", "boolean", levels=levels, gaps=draw(GAPS))


@st.composite
def date_columns(draw):
    first, last = sorted(draw(st.tuples(MOMENTS, MOMENTS)))
    ends = draw(st.sampled_from([(first, last), (None, None), (first.date(), last.date())]))
    hours = draw(st.sampled_from([None, (8, 18), (22, 4), (0, 0)]))
    week = draw(st.sampled_from([(), (1 / 7,) * 7, (0.2, 0.2, 0.2, 0.2, 0.19, 0.005, 0.005)]))
    return ColumnProfile("d", "date", gaps=draw(GAPS), earliest=ends[0], latest=ends[1], hours=hours, weekdays=week)


KINDS = {
    "number": (number_columns(), NUMBERS),
    "category": (level_columns(), st.one_of(st.none(), LEVELS)),
    "boolean": (truth_columns(), st.sampled_from([None, True, False])),
    "date": (date_columns(), st.one_of(st.none(), MOMENTS, st.dates(date(1900, 1, 1), date(2100, 1, 1)))),
}


def said(how, column, value):
    """What is said of a value, None for nothing."""
    found = how(column, value)
    return found and tuple(f"{column.column} {text}" for text in found)


def test_next_to_nothing_is_far_below_the_usual():
    column = ColumnProfile("n", "number", 0.125, 2.0, 2.0)
    assert [said(unusual, column, value)[0] for value in (5e-324, 1e-310, 0.01)] == [
        "n 4.94e-324, far below the usual 2", "n 1e-310, far below the usual 2", "n 0.01, far below the usual 2",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("how", "oracle"), [(unusual, row_by_row.column_words), (unusual_together, row_by_row.unusual_together)]
)
@settings(max_examples=200)
@given(data=st.data())
def test_words_are_those_of_the_oracle(kind, how, oracle, data):
    column, value = (data.draw(one) for one in KINDS[kind])
    assert said(how, column, value) == oracle(column, value)


def mixed_rows(m, seed):
    """Columns of every kind, of one and of several features, and rows of them of which many are unusual."""
    random = np.random.default_rng(seed)
    usual = [
        ColumnProfile("amount", "number", 0.5, 1.0, 2.0, gaps=0.05),
        ColumnProfile("change", "number", -1.0, 0.0, 1.0),
        ColumnProfile("country", "category", levels={"DE": 0.7, "FR": 0.28, "XK": 0.02}),
        ColumnProfile("abroad", "boolean", levels={"true": 0.01, "false": 0.99}, gaps=0.9),
        ColumnProfile("when", "date", earliest=datetime(2024, 1, 1), latest=datetime(2024, 9, 1), hours=(8, 18)),
        ColumnProfile("rest", "number", -50.0, 0.0, 50.0),
    ]
    values = {
        "amount": [None if one < 0 else one for one in random.normal(1, 1, m).tolist()],
        "change": random.normal(0, 1, m).tolist(),
        "country": random.choice(np.array(["DE", "FR", "XK", "ZZ", None], object), m).tolist(),
        "abroad": random.choice(np.array([True, False, None], object), m).tolist(),
        "when": [datetime(2024, 2, 1) + timedelta(hours=one) for one in random.integers(0, 8000, m).tolist()],
        "rest": random.normal(0, 1, m).tolist(),
    }
    origins = [0, 1, 2, 2, 2, 3, 4, 4, 5, 0]
    return usual, values, origins, (2 * random.standard_normal((m, len(origins)))).astype(np.float32)


NOT_SIMILAR = "no other row has similar values of {}"
SAID = {"columns": NOT_SIMILAR, "distilled": NOT_SIMILAR, "space": "unusual as a whole, mostly in {}",
        "tails": "somewhat uncommon values of {}"}  # fmt: skip


def known_of(model, rows, baseline, origins):
    """Shares, whether rows are strange, and what is said of several columns, by the functions that give these."""
    if model.scorer.name == "views":
        found = explained(model, rows, origins)
        return found.shares, found.scores > 0, [SAID[model.scorer.views[view]] for view in found.view]
    falls = attributions(model, rows, baseline, origins=origins)
    apart = model.scores(rows, "cpu", 1) - model.scores(baseline[None], "cpu", 1)
    shares = falls / np.where(apart > 0, apart, np.inf)[:, None]
    return shares, apart > 0, ["unusual combination of {}"] * len(rows)


@pytest.mark.parametrize("scorer", ["center", "knn", "views", *(Views(views=(view,)) for view in SAID)], ids=str)
@pytest.mark.parametrize("most", [1, 3, 6])
def test_reasons_of_many_rows_as_row_by_row(scorer, most):
    usual, values, origins, rows = mixed_rows(150, seed=most)
    model = random_model(len(origins), members=2, scorer=scorer, seed=most)
    baseline = np.zeros(len(origins), np.float32)
    rows[::10] *= 0.01  # ordinary ones too
    found = reasons(model, rows, baseline, origins, usual, values, most=most)
    expected = row_by_row.reasons(*known_of(model, rows, baseline, origins), usual, values, most)
    assert len(found) == len(expected) == 150
    for one, other in zip(found, expected, strict=True):
        assert [reason._replace(share=0) for reason in one] == [reason._replace(share=0) for reason in other]
        np.testing.assert_allclose([r.share for r in one], [r.share for r in other], atol=1e-4)
    assert reason_texts(found).to_pylist() == ["; ".join(reason.words for reason in of_row) for of_row in expected]
    beginnings = {reason.words.split()[0] for of_row in expected for reason in of_row}
    assert {"amount", "change", "country", "abroad", "when"} <= beginnings


def test_values_may_be_arrays_as_well_as_lists():
    usual, values, origins, rows = mixed_rows(80, seed=1)
    model, baseline = random_model(len(origins)), np.zeros(len(origins), np.float32)
    arrays = values | {
        "amount": np.array([np.nan if one is None else one for one in values["amount"]]),
        "country": pa.array(values["country"], pa.large_string()),
        "when": np.array(values["when"], "datetime64[us]"),
    }
    expected = reasons(model, rows, baseline, origins, usual, values)
    assert reasons(model, rows, baseline, origins, usual, arrays) == expected


def test_rows_of_which_nothing_is_strange_say_so_among_others():
    """Rows as usual as the usual one, which stay in their places."""
    usual, values, origins, rows = mixed_rows(40, seed=1)
    model, baseline = random_model(len(origins)), np.zeros(len(origins), np.float32)
    rows[[3, 17, 39]] = baseline
    found = reasons(model, rows, baseline, origins, usual, values)
    texts = reason_texts(found).to_pylist()
    assert len(texts) == 40
    assert [texts[row] for row in (3, 17, 39)] == ["nothing unusual"] * 3
    assert found[17] == (Reason((), 0.0, "nothing unusual", "nothing unusual"),)
    assert texts == ["; ".join(reason.words for reason in of_row) for of_row in found]


def test_no_reasons_have_no_texts():
    assert reason_texts([(), ()]).to_pylist() == ["", ""]
