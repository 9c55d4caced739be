"""A model from behind its preparation scores prepared rows as the model scores the rows."""

import numpy as np
import pytest

from addml import ADDML


@pytest.mark.parametrize("device", ["cpu", "cpu:0"])  # the second stands for an accelerator
@pytest.mark.parametrize("scorer", ["center", "views"])
def test_prepared_rows_are_not_prepared_again(device, scorer):
    pytest.importorskip("torch")
    X = np.random.default_rng(0).normal(3, 2, (300, 4))
    model = ADDML(epochs=2, members=2, random_state=0, scorer=scorer).fit(X).model_
    behind = model.scores(model.vectorizer.prepare(X), device, 1)
    np.testing.assert_allclose(behind, model.scores(model.vectorizer.read(X), "cpu", 1), rtol=1e-3, atol=1e-3)
