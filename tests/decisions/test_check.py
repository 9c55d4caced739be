"""Faults that cannot be planted in a table are named, not an error."""

import numpy as np
import pandas as pd
import pytest

from addml import ADDML


@pytest.mark.parametrize(
    ("levels", "verdict"), [(("yes", None), "not tried: no category column separates the numbers"), (("yes", "no"), "")]
)
def test_rows_of_another_group_need_two_levels(levels, verdict):
    random = np.random.default_rng(0)
    codes = random.integers(2, size=300)
    frame = pd.DataFrame({"flag": np.array(levels, object)[codes], "x": 10.0 * codes + random.normal(size=300)})
    detector = ADDML(epochs=1, members=1, random_state=0).fit(frame)
    found = {one.kind: one.verdict for one in detector.check(frame)}
    assert found["a row from another group"].startswith(verdict)
    assert found["a row from another group"].startswith("not tried") == bool(verdict)
