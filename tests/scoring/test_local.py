"""The local scorer against loops over rows and references, and on tables where it is plain what it must find."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from addml import ADDML
from addml.scoring import Local, local
from addml.scoring.local import ALONG, EMBEDDED, SCALES, group_counts, spread_out
from addml.scoring.scorers import score_rows
from addml.scoring.themselves import _themselves, row_keys
from tests.scoring import by_hand

ROWS = [2, 3, 9, 100, 1030]
SMALL = {"epochs": 1, "hidden": (8,), "metric_dim": 5, "random_state": 0, "device": "cpu"}


def table(n, d=4, seed=0):
    random = np.random.default_rng(seed)
    return random.standard_normal((n, d)) @ random.standard_normal((d, d)) + random.standard_normal(d)


def fit(X, **settings):
    return ADDML(**{**SMALL, "members": 2, **settings}).fit(X)


def embeddings(detector, X):
    """Embeddings (E, n, w)."""
    return detector.transform(X).reshape(len(X), -1, 5).swapaxes(0, 1)


def assert_as_by_hand(detector, X, atol=2e-3):
    """The scores of every view; where a row meets a reference, float32 leaves the root of its rounding."""
    model = detector.model_
    prepared, axes = model.prepare(X), model.scorer.axes
    expected = by_hand.local_scores(embeddings(detector, X), prepared, model.scorer_arrays, model.distance, axes)
    found = model.member_scores(X, "cpu", 1)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=atol)


# References and groups ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [*ROWS, 1024, 1025, 5000])
@pytest.mark.parametrize("count", [8, 100, 1024])
def test_references_lie_at_even_steps_from_the_middle_outwards(n, count):
    norms = np.random.default_rng(n).integers(0, 50, n).astype(np.float32)  # many ties
    found = spread_out(norms, count)
    expected = by_hand.reference_places(norms.tolist(), count)
    assert sorted(found.tolist()) == sorted(expected)
    assert len(set(found.tolist())) == min(n, count)
    assert found.tolist() == spread_out(norms, count).tolist()
    if n > 9:
        assert found.tolist() != expected  # shuffled: groups that follow each other hold no rows of a kind


@pytest.mark.parametrize("n", [2, 7, 8, 15, 16, 17, 100, 127, 128, 129, 511, 512, 1023, 1024, 1030, 4096])
@pytest.mark.parametrize("sizes", [EMBEDDED, ALONG, (8, 32, 128, 512)])
def test_groups_hold_about_so_many_references(n, sizes):
    scales = by_hand.groups(n, sizes)
    assert group_counts(n, sizes) == [len(scale) for scale in scales]
    for size, scale in zip(sizes, scales, strict=True):
        assert sorted(one for group in scale for one in group) == list(range(n))
        if n >= size:
            assert all(size <= len(group) < 2 * size + 1 for group in scale)
        else:
            assert len(scale) == 1


def test_the_full_set_makes_groups_of_those_sizes():
    assert group_counts(1024, ALONG) == [64, 2]
    assert group_counts(512, EMBEDDED) == [128, 1]


@pytest.mark.parametrize("n", ROWS)
@pytest.mark.parametrize("scaling", ["robust", "standard"])
def test_references_are_training_rows_with_their_embeddings(n, scaling):
    X = table(n)
    detector = fit(X, scaling=scaling)
    arrays, prepared = detector.model_.scorer_arrays, detector.model_.prepare(X)
    reach = detector.model_.features.reach.astype(np.float32)
    np.testing.assert_array_equal(arrays["reach"], reach)
    expected = by_hand.reference_places((abs(prepared) @ reach).tolist(), 1024)
    places = {row.tobytes(): place for place, row in enumerate(prepared)}
    shares = [[places[row.tobytes()] for row in share] for share in arrays["rows"]]
    assert sorted(place for share in shares for place in share) == sorted(expected)
    assert len(shares) == (2 if n >= 1024 else 1)
    for member, embedded in enumerate(embeddings(detector, X)):  # every second one sees the same
        np.testing.assert_allclose(arrays["references"][member], embedded[shares[member % len(shares)]], atol=1e-6)


def test_rows_labelled_anomalous_are_no_references():
    X, labels = table(200), np.zeros(200, int)
    labels[:30], labels[30:90] = 1, -1
    detector = ADDML(**SMALL, members=2).fit(X, labels=labels)
    rows = {row.tobytes() for row in detector.model_.scorer_arrays["rows"][0]}
    prepared = detector.model_.prepare(X)
    assert len(rows) == 170
    assert rows == {row.tobytes() for row in prepared[30:]}


@pytest.mark.parametrize("references", [8, 50, 1024, 3000])
def test_there_are_at_most_so_many_references(references):
    arrays = fit(table(1030), scorer=Local(references)).model_.scorer_arrays
    parts, share, _ = arrays["rows"].shape
    assert parts * share == min(references, 1030)
    assert share == arrays["references"].shape[1]


@pytest.mark.parametrize(
    ("references", "members", "shares"),
    [(511, 5, 1), (1023, 5, 1), (1024, 5, 2), (1024, 1, 1), (1030, 3, 2), (2048, 5, 4), (2048, 3, 3), (4096, 5, 5)],
)
def test_references_are_dealt_to_members_in_shares_that_make_a_large_group(references, members, shares):
    """By hand: as many times 512 as there are, one share a member at the most, each every so many-th reference."""
    found = local.in_shares(np.arange(references), members)
    dealt = references - references % shares
    assert [share.tolist() for share in found] == [list(range(first, dealt, shares)) for first in range(shares)]


def test_one_network_sees_all_references():
    X = table(1030)
    arrays = fit(X, members=1).model_.scorer_arrays
    assert arrays["rows"].shape[:2] == (1, 1024)
    assert arrays["references"].shape[1] == 1024


@pytest.mark.parametrize("references", [0, 7, -1, 8.0, True, "8", None])
def test_a_number_of_references_that_makes_no_sense_is_refused(references):
    with pytest.raises(ValueError, match="whole number of at least 8"):
        Local(references=references)


@pytest.mark.parametrize("axes", [0, 1, "yes", None])
def test_axes_are_true_or_false(axes):
    with pytest.raises(ValueError, match="give True or False"):
        Local(axes=axes)


# Scores ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", ROWS)
@pytest.mark.parametrize("axes", [True, False])
def test_scores_are_those_by_hand(n, axes):
    X = table(n)
    detector = fit(X, scorer=Local(axes=axes))
    some = slice(0, 40)  # loops take their time
    assert_as_by_hand(detector, X[some])
    assert_as_by_hand(detector, table(20, seed=1) * np.tile([[1], [5]], (10, 1)))
    np.testing.assert_array_equal(detector.anomaly_score(X), detector.anomaly_scores_)


@pytest.mark.parametrize("distance", ["sqeuclidean", "euclidean", "cosine"])
@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("scaling", ["robust", "standard"])
def test_distances_members_and_scalings(distance, members, scaling):
    X = table(60)
    detector = fit(X, distance=distance, members=members, scaling=scaling)
    assert_as_by_hand(detector, np.r_[X[:20], table(20, seed=2)])


def test_cosine_looks_at_directions_alone():
    """Embeddings that differ in length only are the same place."""
    random = np.random.default_rng(0)
    z, rows = random.standard_normal((2, 64, 5)).astype(np.float32), random.standard_normal((30, 3)).astype(np.float32)
    references = random.standard_normal((2, 30, 5)).astype(np.float32)
    scorer = Local(axes=False)
    arrays = {"rows": rows[None], "reach": np.ones(3, np.float32), "references": references}
    ready, x = scorer.ready(arrays, "cosine"), np.zeros((64, 3), np.float32)
    expected = scorer.score(z, ready, "cosine", scorer.place(x, ready))
    longer = z * random.uniform(0.1, 9, (2, 64, 1)).astype(np.float32)
    np.testing.assert_allclose(scorer.score(longer, ready, "cosine", scorer.place(x, ready)), expected, atol=1e-5)
    np.testing.assert_allclose(expected, by_hand.local_scores(z, x, arrays, "cosine", False), atol=1e-5)


@pytest.mark.parametrize("n", ROWS)
@pytest.mark.parametrize("axes", [True, False])
@pytest.mark.parametrize("distance", ["sqeuclidean", "cosine"])
def test_torch_gives_the_same(n, axes, distance):
    """Torch on the CPU stands for torch on a device."""
    X = table(n)
    model = fit(X, scorer=Local(axes=axes), distance=distance).model_
    x = np.zeros((2, 1, 128, 4), np.float32)
    x.reshape(256, 4)[: min(n, 200)] = model.prepare(X[:200])
    z = model.encoder.embed(x)
    arrays = {name: torch.tensor(array) for name, array in model.scorer_arrays.items()}
    expected = score_rows(model.scorer, x, z, model.scorer_ready("cpu"), distance, slice(0, 200))
    ready = model.scorer.ready(arrays, distance)
    found = score_rows(model.scorer, torch.tensor(x), torch.tensor(z), ready, distance, slice(0, 200))
    assert isinstance(found, torch.Tensor)
    count = min(n, 200)
    by_row = [np.moveaxis(scores, 1, 0).reshape(scores.shape[1], -1)[:, :count] for scores in (found.numpy(), expected)]
    np.testing.assert_allclose(*by_row, rtol=1e-4, atol=2e-3)


@pytest.mark.parametrize("n", [700, 1500])  # one share of references, and two
@pytest.mark.parametrize("members", [1, 2, 3])
def test_rows_in_any_company_have_the_same_bits(n, members):
    X = table(n)
    model, X = fit(X, members=members).model_, X[:700]
    whole = model.member_scores(X, "cpu", 1)
    for start, stop in [(0, 1), (5, 70), (63, 65), (255, 513), (699, 700)]:
        np.testing.assert_array_equal(model.member_scores(X[start:stop], "cpu", 1), whole[:, start:stop])
    order = np.random.default_rng(0).permutation(700)
    np.testing.assert_array_equal(model.member_scores(X[order], "cpu", 3), whole[:, order])


def test_the_same_seed_gives_the_same_references_and_scores():
    X = table(1500)
    one, other = fit(X), fit(X)
    for name, array in one.model_.scorer_arrays.items():
        np.testing.assert_array_equal(array, other.model_.scorer_arrays[name])
    np.testing.assert_array_equal(one.anomaly_scores_, other.anomaly_scores_)


def test_a_copy_in_float32_or_another_order_of_memory_is_the_same_row():
    X = table(50).astype(np.float32).astype(np.float64)
    detector = fit(X)
    for same in (X.astype(np.float32), np.asfortranarray(X), X.tolist()):
        np.testing.assert_array_equal(detector.anomaly_score(same), detector.anomaly_scores_)


# A row is no neighbour of itself -----------------------------------------------------------------------------


def test_a_reference_is_not_its_own_neighbour():
    X = table(40)
    detector = fit(X)
    scores = detector.model_.member_scores(X, "cpu", 1)
    assert (scores > 0).all()
    nudged = detector.model_.member_scores(X + 1e-6, "cpu", 1)
    assert (nudged[SCALES - 1 :: SCALES] < 0.01).all()  # in the largest groups, what is no reference has one beside it


def test_copies_of_a_row_are_no_neighbours_of_it():
    X = table(40)
    X[10] = X[20] = X[30]
    X[5] = X[6]
    detector = fit(X)
    assert_as_by_hand(detector, X)
    assert (detector.model_.member_scores(X, "cpu", 1) > 0).all()


def test_a_group_of_nothing_but_copies_is_where_the_row_is():
    X = np.zeros((12, 2))
    X[:2] = [[1, 2], [3, -1]]
    detector = fit(X)
    assert_as_by_hand(detector, X)
    scores = detector.model_.member_scores(X, "cpu", 1)
    assert np.isfinite(scores).all()
    assert (scores[:, 2:] < scores[:, :2].max()).all()


def test_what_stands_there_far_more_often_than_other_rows_is_its_own_neighbour():
    X = table(300)
    X[40:] = X[40]
    detector = fit(X)
    assert_as_by_hand(detector, X)
    common, near = detector.anomaly_score([X[40], X[40] + [0.001, 0, 0, 0]])
    assert common < near < detector.anomaly_scores_[:40].min()


@pytest.mark.parametrize(("times", "left"), [(1, 51), (9, 59), (10, 51)])
def test_far_more_often_is_eight_times_as_often_as_on_average(times, left):
    """Of 50 + 9 rows 51 are distinct: one stands there 1.16 times on average, and 9.25 are eight times that."""
    keys = np.repeat(np.arange(51), [times, *[1] * 50])
    assert len(_themselves(keys, table(51)[keys])) == left


@pytest.mark.parametrize(("times", "left"), [(1, 4), (2, 4), (9, 4)])
def test_copies_that_chance_brings_are_neighbours(times, left):
    """Two columns of two values: of two distinct rows a third share the first, a ninth would share both if there were
    more of them; of 8 rows that is 28 / 9 pairs, so that each row is itself once."""
    rows = np.repeat([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], times, axis=0)
    assert len(_themselves(np.repeat(np.arange(4), times), rows)) == left
    beside = np.column_stack([rows, np.repeat(table(4)[:, 0], times)])  # a column that never repeats by chance
    assert len(_themselves(np.repeat(np.arange(4), times), beside)) == 4 * times


def test_a_rare_pair_of_common_levels_is_stranger_than_the_common_pairs():
    levels = np.repeat([[0, 0], [1, 1], [2, 2], [0, 1]], [200, 200, 200, 6], axis=0)
    X = np.hstack([np.eye(3)[levels[:, 0]], np.eye(3)[levels[:, 1]]])
    detector = ADDML(random_state=0, device="cpu").fit(X)
    assert_as_by_hand(fit(X), X[::50])
    assert detector.anomaly_scores_[600:].min() > detector.anomaly_scores_[:600].max()


@pytest.mark.parametrize("copies", [1, 2, 5])
def test_new_rows_of_the_same_kind_are_as_normal_as_rows_that_stand_several_times_in_training(copies):
    random = np.random.default_rng(0)
    detector = ADDML(random_state=0).fit(np.repeat(random.standard_normal((300, 5)), copies, axis=0))
    flagged = detector.is_anomaly(random.standard_normal((1000, 5))).mean()
    assert 0.06 < flagged < 0.16  # a tenth, as in training


def test_zero_has_two_signs_and_is_one_value():
    X = np.random.default_rng(0).integers(-1, 2, (60, 3)).astype(np.float64)
    detector = fit(X, scaling="standard")
    model = detector.model_
    rows = model.scorer_arrays["rows"].copy()
    rows[..., 0] = 0.0
    negative = rows[0].copy()
    negative[:, 0] = -0.0
    np.testing.assert_array_equal(row_keys(rows[0]), row_keys(negative))
    ready = model.scorer.ready({**model.scorer_arrays, "rows": rows}, "sqeuclidean")
    found, places = model.scorer.place(negative[:9], ready).own
    expected = [(row, place) for row in range(9) for place in by_hand.no_neighbours(rows[0, row], rows[0])]
    assert list(zip(found.tolist(), places.tolist(), strict=True)) == expected


@pytest.mark.parametrize("d", [1, 2, 7, 300])
def test_keys_tell_rows_apart(d):
    random = np.random.default_rng(d)
    rows = random.integers(-3, 4, (2000, d)).astype(np.float32) / 2
    distinct = len(np.unique(rows, axis=0))
    assert len(np.unique(row_keys(rows))) == distinct
    assert row_keys(torch.tensor(rows)).tolist() == row_keys(rows).tolist()
    near = np.repeat(rows[:1], 2, axis=0)
    near[1, -1] = np.nextafter(near[1, -1], np.float32(9))
    assert len(set(row_keys(near).tolist())) == 2


def test_the_arrays_of_the_model_stay_as_they_are():
    detector = fit(table(100))
    arrays = detector.model_.scorer_arrays
    before = {name: array.copy() for name, array in arrays.items()}
    for array in arrays.values():
        array.setflags(write=False)
    for _ in range(2):
        np.testing.assert_array_equal(detector.anomaly_score(table(100)), detector.anomaly_scores_)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, before[name])


# What it must find -------------------------------------------------------------------------------------------


def on_a_line(rows, references):
    """Scores (b,) by size of group of places on a line, which are the only column and the embedding alike."""
    x, references = (np.array(places, np.float32)[:, None] for places in (rows, references))
    scorer = Local(axes=False)
    arrays = {"rows": references[None], "reach": np.ones(1, np.float32), "references": references[None]}
    ready = scorer.ready(arrays, "sqeuclidean")
    return dict(zip(local.EMBEDDED, scorer.score(x[None], ready, "sqeuclidean", scorer.place(x, ready)), strict=True))


@pytest.fixture
def four_scales(monkeypatch):
    """Groups that are easily worked out, whatever the sizes in use."""
    monkeypatch.setattr(local, "EMBEDDED", (8, 32, 128, 512))


@pytest.mark.usefixtures("four_scales")
def test_a_row_of_a_small_cluster_is_far_from_most_small_groups():
    """16 groups of 8; the six rows at 100 lie in six of them."""
    references = [0.0] * 122 + [100.0] * 6
    found = on_a_line([100.5, 0.5, 50.0], references)
    np.testing.assert_allclose(found[8], [(10 * 100.5 + 6 * 0.5) / 16, 0.5, 50], rtol=1e-5)
    np.testing.assert_allclose(found[32], [0.5, 0.5, 50], rtol=1e-4)  # 4 groups of 32: each has one
    np.testing.assert_allclose(found[128], [0.5, 0.5, 50], rtol=1e-4)
    np.testing.assert_allclose(found[512], found[128])


@pytest.mark.usefixtures("four_scales")
def test_fine_structure_is_seen_by_large_groups():
    """References at every whole number but 60 to 67: 128 of them, so that the large groups are one."""
    references = np.delete(np.arange(136.0), np.arange(60, 68))
    found = on_a_line([63.5, 30.5], references)
    np.testing.assert_allclose(found[128], [4.5, 0.5], rtol=1e-3)
    np.testing.assert_allclose(found[512], [4.5, 0.5], rtol=1e-3)
    np.testing.assert_allclose(found[8], [8, 4], rtol=1e-3)


@pytest.mark.parametrize("kind", ["clustered", "scattered"])
def test_anomalies_are_found(kind):
    random = np.random.default_rng(3)
    normal, y = random.standard_normal((900, 6)), np.repeat([0, 1], [900, 12])
    far = random.standard_normal((12, 6))
    strange = 4 + 0.2 * far if kind == "clustered" else 8 * far / np.sqrt((far**2).sum(1, keepdims=True))
    detector = ADDML(random_state=0, device="cpu", epochs=3).fit(np.r_[normal, strange])
    assert roc_auc_score(y, detector.anomaly_scores_) > 0.99
    views = detector.model_.member_scores(np.r_[normal, strange], "cpu", 1)
    every = [roc_auc_score(y, one) for one in views]
    small, large = np.mean(every[::SCALES]), np.mean(every[SCALES - 1 :: SCALES])
    assert small > 0.95
    assert (large > 0.95) == (kind == "scattered")  # in a large group those of a cluster have each other


def test_one_strange_value_among_many_ordinary_ones_is_seen_along_the_columns():
    random = np.random.default_rng(0)
    X = random.standard_normal((600, 60))
    X[:10, 7] = 9.0 * random.choice([-1, 1], 10)
    y = np.arange(600) < 10
    views = ADDML(random_state=0, device="cpu", epochs=3).fit(X).model_.member_scores(X, "cpu", 1)
    every = [roc_auc_score(y, one) for one in views]
    embedded, columns = np.mean(every[: 5 * SCALES]), np.mean(every[5 * SCALES :])
    assert columns > 0.85
    assert columns > embedded
