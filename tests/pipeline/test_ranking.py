"""What the report says of distillation: only members that train on a row can drop it."""

from types import SimpleNamespace

import numpy as np

from addml.pipeline.ranking import left_out_epochs


def test_rows_held_out_by_a_member_are_not_dropped_by_it():
    # two epochs, two members, four rows; member 1 stops after the first epoch, member 0 holds out row 2, both row 3
    kept = np.array([[[1, 0, 0, 0], [1, 1, 1, 0]], [[1, 1, 0, 0], [0, 0, 0, 0]]], bool)
    held_out = np.array([[0, 0, 1, 1], [0, 0, 0, 1]], bool)
    model = SimpleNamespace(rows_kept=lambda: kept, held_out=held_out)
    ranked = [SimpleNamespace(row=row) for row in (1, 2, 3, 4, 9)]  # row 9 was not trained on
    found = left_out_epochs(model, np.arange(4), ranked)
    np.testing.assert_array_equal(found, [[0, 0.5, 0, np.nan, np.nan], [0, 0, np.nan, np.nan, np.nan]])
