"""Which rows stay listed as batches come in, against sorting all of them."""

import numpy as np
import pyarrow as pa
import pytest

from addml.explain import reason_texts
from addml.pipeline.ranking import SCORE, Candidate, Part, Scored, highest, piece_of


def part(scores, start):
    """A batch of rows of which all are explained."""
    order = highest(scores, len(scores))
    places = order + start
    rows = pa.record_batch({"place": places})
    listed = [
        Candidate(int(at), float(score), {"place": int(at)}, ())
        for at, score in zip(places, scores[order], strict=True)
    ]
    return Part(piece_of(scores, rows, order, reason_texts([()] * len(scores))), listed)


@pytest.mark.parametrize("most", [1, 7, 40, 1000])
@pytest.mark.parametrize("levels", [3, 10**6])
def test_the_highest_of_all_batches_are_listed_the_first_of_equals_first(most, levels):
    scores = np.random.default_rng(most).integers(0, levels, 200) / levels
    scored = Scored(most)
    for start in range(0, 200, 30):
        scored.add(part(scores[start : start + 30], start))
    expected = sorted(range(200), key=lambda place: (-scores[place], place))[:most]
    assert [row.row_index for row in scored.listed] == expected
    assert [one.score for one in scored.listed] == [scores[place] for place in expected]
    assert [one.values["place"] for one in scored.listed] == expected
    assert all(one.reasons == () for one in scored.listed)
    np.testing.assert_array_equal(scored.column(SCORE), scores)
