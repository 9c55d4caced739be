"""Which row is it, what stands for what, and which faults would be found."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.cli.running import QUICK


@pytest.fixture
def orders(tmp_path: Path) -> pd.DataFrame:
    """Orders with a number, a remark, and amounts; six are far too high, one weight is far too low."""
    random = np.random.default_rng(0)
    words = [" ".join(random.choice(["send", "back", "by", "plane", "soon", "please", "it"], 9)) for _ in range(300)]
    table = pd.DataFrame({"order": np.arange(1, 301), "remark": words, "amount": random.normal(100, 5, 300)})
    table["weight"] = random.normal(10, 1, 300)
    table["country"] = random.choice(["DE", "FR"], 300)
    table.loc[20:25, "amount"] = [900, 910, 920, 930, 940, 950]
    table.loc[100, "weight"] = -50.0
    table.to_csv(tmp_path / "orders.csv", index=False)
    return table


def test_the_most_readable_text_is_kept_and_others_on_request(addml, orders, tmp_path):
    addml("detect", "orders.csv", "--no-report", *QUICK).succeeded()
    plain = pd.read_csv(tmp_path / "orders.scored.csv")
    assert plain.columns[:2].tolist() == ["order", "remark"]
    assert plain["remark"].tolist() == orders["remark"].tolist()
    addml("detect", "orders.csv", "--no-report", "--keep", "country,amount", *QUICK).succeeded()
    kept = pd.read_csv(tmp_path / "orders.scored.csv")
    assert kept.columns[:4].tolist() == ["order", "remark", "country", "amount"]
    assert kept["score"].tolist() == plain["score"].tolist()
    addml("detect", "orders.csv", "--no-report", "--keep", "all", *QUICK).succeeded()
    assert set(orders.columns) <= set(pd.read_csv(tmp_path / "orders.scored.csv").columns)


def test_a_wrong_name_to_keep_is_an_error_before_the_work(addml, orders):
    done = addml("detect", "orders.csv", "--keep", "amuont", *QUICK)
    done.failed("has no column 'amuont' (--keep). Did you mean 'amount'?")


def test_an_id_that_was_dropped_anyway_changes_no_score(addml, orders, tmp_path):
    addml("detect", "orders.csv", "--no-report", *QUICK).succeeded()
    plain = pd.read_csv(tmp_path / "orders.scored.csv")
    addml("detect", "orders.csv", "--no-report", "--id", "order", "--ignore", "remark", *QUICK).succeeded()
    named = pd.read_csv(tmp_path / "orders.scored.csv")
    assert named["score"].tolist() == plain["score"].tolist()
    assert named["rank"].tolist() == plain["rank"].tolist()


def test_a_workbook_in_is_a_workbook_out(addml, orders, tmp_path):
    pytest.importorskip("openpyxl")
    orders.assign(remark="+1+1").to_excel(tmp_path / "orders.xlsx", index=False)
    addml("detect", "orders.xlsx", "--no-report", "--keep", "remark", *QUICK).succeeded()
    found = pd.read_excel(tmp_path / "orders.scored.xlsx")
    assert len(found) == 300
    assert found["is_anomaly"].sum() == 30
    assert found["remark"].eq("'+1+1").all()  # no formula


def test_one_example_of_similar_rows_comes_first(addml, orders):
    out = addml("detect", "orders.csv", "--no-report", "--flag", "7", "--top", "2", *QUICK).succeeded().out
    assert "6 similar rows: amount unusually high" in out
    assert "(and 5 similar rows)" in " ".join(out.split())
    assert "amount 9" in out
    assert "weight -50" in out  # before the other five


def test_check_prints_which_faults_would_be_found(addml, orders):
    out = addml("detect", "orders.csv", "--no-report", "--check", "--top", "0", *QUICK)
    out.succeeded("Faults planted in held-out rows")
    document = json.loads(addml("detect", "orders.csv", "--no-report", "--check", "--json", *QUICK).out)
    kinds = {one["kind"]: one["verdict"] for one in document["check"]}
    assert kinds["a value out of range"] == "found"
    assert kinds["columns that contradict each other"] == "not tried: no two number columns are related"
