"""A row is judged within its own group: `by=` of the detector."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import addml
from addml import ADDML, model_file
from addml.inputs import MemoryRows

QUICK = {"epochs": 2, "members": 2, "random_state": 0}


def stores(groups: int, days: int, seed: int = 0) -> pd.DataFrame:
    """Daily figures of stores whose sizes span a factor of a hundred; spread grows with size."""
    random = np.random.default_rng(seed)
    size = np.exp(random.uniform(np.log(20), np.log(2000), groups))
    store, level = np.repeat([f"s{n:04}" for n in range(groups)], days), np.repeat(size, days)
    sales = level * (1 + 0.08 * random.normal(size=groups * days))
    return pd.DataFrame({"store": store, "sales": sales, "visitors": sales * random.uniform(1.9, 2.1, groups * days)})


def dropped(table: pd.DataFrame, store: str, share: float = 0.2) -> pd.DataFrame:
    return table.assign(
        sales=np.where(table["store"] == store, share * table["sales"], table["sales"]),
        visitors=np.where(table["store"] == store, share * table["visitors"], table["visitors"]),
    )


def test_a_group_that_drops_by_80_percent_is_at_the_top():
    table = stores(20, 60)
    fallen = table["store"].unique()[np.argsort(table.groupby("store")["sales"].median().to_numpy())[12]]
    new = dropped(table.groupby("store").head(5), fallen).reset_index(drop=True)
    scores = ADDML(by="store", **QUICK).fit(table).anomaly_score(new)
    top = np.argsort(-scores)[:5]
    assert set(new["store"].iloc[top]) == {fallen}
    pooled = ADDML(**QUICK).fit(table.drop(columns="store")).anomaly_score(new.drop(columns="store"))
    assert len(set(np.argsort(-pooled)[:5]) & set(np.flatnonzero(new["store"] == fallen))) < 2  # its level is common


def test_one_day_of_one_group_is_at_the_top_of_the_table_it_was_trained_in():
    table = stores(30, 40)
    table.loc[17, ["sales", "visitors"]] *= 0.2
    detector = ADDML(by="store", **QUICK).fit(table)
    assert detector.anomaly_scores_.argmax() == 17


def test_groups_of_other_units_score_as_they_do_in_the_units_of_the_whole():
    table = stores(8, 50)
    other = table.assign(sales=np.where(table["store"] == "s0003", 1000 * table["sales"] + 5, table["sales"]))
    first, second = (ADDML(by="store", **QUICK).fit(one).anomaly_scores_ for one in (table, other))
    assert np.corrcoef(first, second)[0, 1] > 0.9


def test_every_group_has_its_own_threshold():
    random = np.random.default_rng(1)
    calm = pd.DataFrame({"kind": "calm", "x": random.normal(size=500), "y": random.normal(size=500)})
    heavy = pd.DataFrame({"kind": "heavy", "x": random.standard_t(2, 500), "y": random.standard_t(2, 500)})
    table = pd.concat([calm, heavy], ignore_index=True)
    detector = ADDML(by="kind", contamination=0.1, **QUICK).fit(table)
    flagged = detector.is_anomaly(table)
    shares = [flagged[(table["kind"] == kind).to_numpy()].mean() for kind in ("calm", "heavy")]
    assert shares == pytest.approx([0.1, 0.1], abs=0.03)


def test_unseen_groups_are_judged_against_the_whole_and_listed():
    table = stores(10, 30)
    detector = ADDML(by="store", **QUICK).fit(table)
    ordinary = table.head(4).assign(store="new", sales=table["sales"].median(), visitors=table["visitors"].median())
    with pytest.warns(UserWarning, match=r"1 group unseen in training, judged against the whole: 'new' \(4 rows\)"):
        scores = detector.anomaly_score(ordinary)
    assert (scores < detector.threshold_).all()


def test_contributions_add_up_and_the_model_survives_a_file(tmp_path):
    table = stores(6, 40)
    table["weekday"] = np.tile(["mon", "tue"], 120)
    detector = ADDML(by=["store", "weekday"], **QUICK).fit(table)
    scores = detector.anomaly_score(table)
    np.testing.assert_allclose(detector.explain(table).sum(axis=1), scores, rtol=1e-6, atol=1e-9)
    detector.save(tmp_path / "model")
    np.testing.assert_array_equal(addml.load(tmp_path / "model").anomaly_score(table), scores)
    np.testing.assert_array_equal(
        np.concatenate([detector.anomaly_score(table[n : n + 7]) for n in range(0, 240, 7)]), scores
    )


def test_small_groups_borrow_from_the_whole():
    table = pd.concat([stores(20, 60), stores(20, 3, seed=5).assign(store=lambda one: "few" + one["store"])])
    detector = ADDML(by="store", **QUICK).fit(table)
    note = detector.model_.columns.notes[-1]
    assert "40 groups of 3 to 60 rows; small ones borrow from the whole" in note
    flagged = detector.is_anomaly(table)
    assert flagged[1200:].mean() < 0.3


def test_a_model_whose_group_references_do_not_fit_is_refused(tmp_path):
    detector = ADDML(by="store", **QUICK).fit(stores(3, 60))
    model, groups = detector.model_, detector.model_.vectorizer.groups
    for change in (
        {"own_embedded": groups.own_embedded[:, :-1]},
        {"own_rows": groups.own_rows[:, :-1]},
        {"own": groups.own * [1, -1, 3]},
    ):
        wrong = replace(model, vectorizer=model.vectorizer.with_groups(replace(groups, **change)))
        model_file.save(wrong, tmp_path / "model")
        with pytest.raises(model_file.ModelFileError, match="fit and save it again"):
            model_file.load(tmp_path / "model")


def lines(rows: int, seed: int) -> pd.DataFrame:
    """Two groups of the same ranges: y goes up with x in the first and down in the second."""
    random = np.random.default_rng(seed)
    x, side = random.normal(size=2 * rows), np.repeat([1, -1], rows)
    y = side * x + 0.1 * random.normal(size=2 * rows)
    return pd.DataFrame({"x": x, "y": y, "group": np.where(side > 0, "up", "down")})


def test_a_row_is_compared_with_the_references_of_its_own_group():
    """A row of one group that lies on the other's line is ordinary in the whole and in each of its columns."""
    detector = ADDML(by="group", **QUICK).fit(lines(300, 0))
    groups = detector.model_.vectorizer.groups
    assert groups.own.tolist() == [300, 300]
    assert groups.own_weight.tolist() == pytest.approx([300 / 350, 300 / 350, 0])
    new = lines(50, 1)
    new = new[abs(new["x"]) > 1]
    wrong = new.assign(group=np.where(new["group"] == "up", "down", "up"))
    assert np.median(detector.anomaly_score(wrong)) > np.quantile(detector.anomaly_score(new), 0.9)
    np.testing.assert_allclose(detector.model_.vectorizer.groups.own_weight, [300 / 350, 300 / 350, 0])


def test_the_view_of_a_score_by_hand():
    """The score is the share n / (n + 50) of the group's own and the rest of the whole's, before its threshold."""
    table = lines(100, 2)
    model = ADDML(by="group", **QUICK).fit(table).model_
    features, codes = model.vectorizer.prepare(pa.Table.from_pandas(table)), np.repeat([1, 0], 100)
    whole = model.combine(model.member_scores(features, "cpu", 1))
    expected = np.empty(200)
    for code in (0, 1):
        group_model = next(own for own, index, _ in model.group_models(codes) if codes[index[0]] == code)
        in_group = codes == code
        scores = group_model.combine(group_model.member_scores(features[in_group], "cpu", 1))
        expected[in_group] = whole[in_group] / 3 + 2 / 3 * scores
    plain = np.sign(expected) * np.expm1(abs(expected)) / model.vectorizer.groups.divisor[codes]
    found = model.scores(MemoryRows(features, codes), "cpu", 1)
    np.testing.assert_allclose(found, np.sign(plain) * np.log1p(abs(plain)), rtol=1e-12)


def test_5000_groups_in_one_table():
    table = stores(5000, 4)
    table.loc[2001, ["sales", "visitors"]] *= 0.2
    assert ADDML(by="store", **QUICK).fit(table).anomaly_scores_.argmax() == 2001


@pytest.mark.parametrize(
    ("by", "words"),
    [
        ("shop", "there is no column 'shop'. The columns are: store, sales, visitors."),
        ("sales", "makes 60 groups of 60 rows; name coarser columns"),
        (["store", "store"], "a list of different names"),
    ],
)
def test_wrong_groups_are_named(by, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        ADDML(by=by, **QUICK).fit(stores(3, 20))


def test_groups_need_named_columns():
    with pytest.raises(ValueError, match="names columns of a data frame"):
        ADDML(by="store", **QUICK).fit(np.zeros((5, 2)))
