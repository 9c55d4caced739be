"""What a fitted detector shows in Python."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from addml import ADDML


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(0)
    kind = random.choice(["small", "large"], 300)
    size = np.where(kind == "large", 50.0, 10.0) + random.normal(size=300)
    found = pd.DataFrame({"kind": kind, "size": size, "weight": 2 * size + random.normal(size=300)})
    found.loc[7, "weight"] = 400.0
    return found.set_index(np.arange(1000, 1300))


@pytest.fixture(scope="module")
def detector(table):
    return ADDML(random_state=0, device="cpu").fit(table)


def test_reasons_are_sentences(detector, table):
    found = detector.reasons(table)
    assert len(found) == 300
    assert found[7].startswith("weight 400, far above the usual ")


def test_reasons_of_an_array_name_its_columns_by_place():
    X = np.random.default_rng(0).normal(size=(200, 3))
    X[5, 1] = 30
    found = ADDML(random_state=0, device="cpu").fit(X)
    assert found.reasons(X[[5]])[0].startswith("column 1 30, far above the usual ")


def test_reasons_need_a_table():
    steps = np.sin(np.arange(200.0))
    series = ADDML(random_state=0, device="cpu", window=8, epochs=1, members=1).fit(steps)
    with pytest.raises(ValueError, match="columns of a table"):
        series.reasons(steps)


def test_explain_of_a_frame_is_a_frame_in_the_order_of_training(detector, table):
    found = detector.explain(table[["weight", "size", "kind"]], rows=[7, 8])
    assert found.columns.tolist() == ["kind", "size", "weight"]
    assert found.index.tolist() == [1007, 1008]
    assert found.loc[1007].idxmax() == "weight"
    np.testing.assert_allclose(found.sum(axis=1), detector.anomaly_score(table.iloc[[7, 8]]), atol=1e-6)


@pytest.mark.parametrize("new", [False, True])
def test_a_report_of_training_rows_and_of_new_ones(detector, table, tmp_path, new):
    rows = table.iloc[:50] if new else table
    text = detector.report(rows, tmp_path / "report.md", top=3).read_text()
    assert f"of {len(rows)} rows flagged" in text
    assert "weight 400, far above the usual" in text
    assert ("all used for training" in text) != new
    assert "400" not in detector.report(rows, tmp_path / "hidden.md", redact=True).read_text()


def test_charts(detector, table):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    axes = detector.plot_scores()
    assert sum(bar.get_height() for bar in axes.patches) == 300
    assert sum(bar.get_height() for bar in detector.plot_scores(table.iloc[:40]).patches) == 40
    axes = detector.plot_row(table, 7, ax=pyplot.subplots()[1])
    assert [label.get_text() for label in axes.get_yticklabels()][-1] == "weight = 400.0"
    assert sum(bar.get_width() for bar in axes.patches) == pytest.approx(detector.anomaly_scores_[7], abs=1e-6)
    pyplot.close("all")


def test_a_notebook_shows_threshold_history_and_top_rows(detector):
    shown = detector._repr_mimebundle_()["text/html"]
    assert "30 of 300 training rows flagged: the 10% highest-scoring training rows" in shown
    assert "Training: 10 epochs, loss " in shown
    assert "<tr><td>8</td>" in shown  # rows are counted from 1
    assert "ADDML" in ADDML()._repr_mimebundle_()["text/html"]


def test_nearest_normal_without_asking_for_it(detector, table):
    assert detector.nearest_normal(table.iloc[[7]], k=2).rows.shape == (1, 2)


def test_check_plants_faults_that_are_found_and_missed(detector, table):
    found = {one.kind: one for one in detector.check(table)}
    assert found["a value out of range"].verdict == "found"
    assert found["a row from another group"].verdict == "found"
    assert found["columns that contradict each other"].flagged > 0.8
    assert all(0 <= one.first <= one.flagged <= 1 for one in found.values())
    assert found == {one.kind: one for one in detector.check(table)}  # the same each time


def test_check_says_what_cannot_be_tried():
    X = np.random.default_rng(0).normal(size=(200, 3))
    found = {one.kind: one.verdict for one in ADDML(random_state=0, device="cpu").fit(X).check(X)}
    assert found["columns that contradict each other"] == "not tried: no two number columns are related"
    assert found["a row from another group"] == "not tried: no category column separates the numbers"


def test_check_needs_some_rows():
    X = np.random.default_rng(0).normal(size=(30, 3))
    with pytest.raises(ValueError, match="at least 50 rows; the table has 30"):
        ADDML(random_state=0, device="cpu", epochs=1).fit(X).check(X)


def test_a_report_begins_with_one_example_of_each_group(table, tmp_path):
    strange = table.copy()
    strange.iloc[20:25, 2] = [500.0, 510.0, 520.0, 530.0, 540.0]
    strange.iloc[30, 1] = -900.0
    found = ADDML(random_state=0, device="cpu").fit(strange)
    page = found.report(strange, tmp_path / "report.html").read_text()
    top = page[page.index('<ol class="top">') :]
    assert "weight 5" in top[: top.index("</li>")] or "size -900" in top[: top.index("</li>")]
    first = top[: top.index("</ol>")]
    assert "size -900" in first
    assert "similar rows</small>" in first
