"""A fitted detector as the commands use it."""

import numpy as np
import pyarrow as pa
import pytest

from addml import ADDML
from addml.detection import fitted as module
from addml.detection.fitted import Fitted
from addml.detection.settings import Computing, Deciding


def test_a_flagged_row_has_a_reason_where_no_row_is_usual_in_every_column():
    """Days all round the year have a mean in the middle of the circle, where none of them is."""
    random, rows = np.random.default_rng(0), np.arange(400)
    days = (np.datetime64("2024-01") + rows % 12).astype("datetime64[D]") + rows % 28
    table = pa.table({"when": days, "country": random.choice(["DE", "FR", "TR"], 400, p=[0.6, 0.3, 0.1])})
    detector = ADDML(random_state=0).fit(table)
    fitted = Fitted.of(detector, table)
    flagged = np.flatnonzero(detector.anomaly_scores_ > detector.threshold_)
    batch = table.take(flagged).combine_chunks().to_batches()[0]
    found = fitted.reasons(batch, fitted.features(batch, 0, None), 3)
    assert 36 < len(found) == len(flagged) <= 40  # but for ties
    assert all(reasons for reasons in found)


@pytest.mark.parametrize(("asked", "taken"), [("auto", "cpu"), ("cuda:1", "cuda:1"), ("cpu", "cpu")])
def test_a_table_is_scored_on_the_cpu_unless_something_else_is_said(tmp_path, monkeypatch, asked, taken):
    table = pa.table({"x": np.arange(50.0) % 11, "y": np.arange(50.0) % 7})
    Fitted.of(ADDML(epochs=1, members=1, device="cpu").fit(table), table).save(tmp_path / "model")
    monkeypatch.setattr(module, "resolve_device", {"auto": "cuda", "cuda:1": "cuda:1", "cpu": "cpu"}.__getitem__)
    found = Fitted.load(str(tmp_path / "model"), Computing(device=asked), Deciding())
    assert found.device == taken
