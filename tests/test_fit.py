"""What a fit puts together from its stages."""

import warnings

import numpy as np

from addml.fit import _norms


def test_what_a_product_meets_beside_its_numbers_is_no_warning():
    """OpenBLAS may, by chance; infinity times zero stands for that."""
    rows, reach = np.array([[np.inf, 1.0], [3.0, -2.0]], np.float32), np.array([0.0, 1.0], np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(_norms(lambda ids: rows[ids], np.arange(2), reach), [np.nan, 2])
