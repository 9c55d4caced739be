"""Every view against its definition, written out in loops over rows and references in double precision."""

import math

import numpy as np
import pytest

from addml import ADDML, MLP
from addml.scoring.scorer import MetricSpace
from addml.scoring.views import VIEWS, Views

SMALL = {
    "epochs": 1,
    "members": 2,
    "encoder": MLP((8,), 4),
    "random_state": 0,
    "device": "cpu",
}


# The definitions --------------------------------------------------------------------------------------------


def index_of(row, references):
    """The first reference that equals the row, if any does."""
    return next((index for index, reference in enumerate(references) if (row == reference).all()), None)


def mean_of_nearest(distances, own, k):
    """The mean of the k least distances, without the row itself; of as many as a reference has at the most."""
    others = sorted(distance for index, distance in enumerate(distances) if index != own)
    return np.mean(others[: min(k, max(1, len(distances) - 1))])


def tails(row, own, references):
    total = 0.0
    others = np.delete(references, [] if own is None else own, axis=0)
    for value, column in zip(row, others.T, strict=True):
        extreme = min((column <= value).sum(), (column >= value).sum())
        total -= math.log((extreme + 1) / (len(others) + 1))
    return total


def by_hand(x, z, arrays, distance="sqeuclidean"):
    """The four views (4, b) of rows x (b, d) with embeddings z (E, b, w)."""
    x, z, rows, embedded = (array.astype(np.float64) for array in (x, z, arrays["rows"], arrays["references"]))
    counted = arrays["column_weight"] > 0
    if distance == "cosine":
        z, embedded = (array / np.linalg.norm(array, axis=2, keepdims=True) for array in (z, embedded))
    kept, result = math.ceil(0.8 * len(rows) - 1e-9), []
    for index, row in enumerate(x):
        own = index_of(row, rows)
        distances = [abs(row - reference)[counted].sum() for reference in rows]
        in_space = [math.sqrt(((z[:, index] - reference) ** 2).sum()) for reference in embedded.swapaxes(0, 1)]
        step = math.ceil(len(rows) / 256)  # one in `step` references is embedded
        own_embedded = own // step if own is not None and own % step == 0 else None
        result.append(
            (
                mean_of_nearest(distances, own, 2),
                mean_of_nearest(in_space, own_embedded, 5),
                mean_of_nearest(distances[: max(kept, 2)], own, 5),
                tails(row[counted], own, rows[:, counted]),
            )
        )
    return np.array(result).T


def example(references, d=4, w=3, members=2, rows=40, seed=0, weight=None):
    """Arrays of references, and rows with embeddings: new ones, some far out, and then all references themselves."""
    random = np.random.default_rng(seed)
    known_rows, new = random.standard_normal((references, d)), random.standard_normal((rows, d))
    new[::5] *= 10
    known_rows[-1] = known_rows[-2] + 0.1
    new[1] = known_rows[-2] + 0.03  # nearest to two that the distilled view does not compare with
    x, z = np.concatenate([new, known_rows]), random.standard_normal((members, rows + references, w))
    arrays = {
        "rows": known_rows,
        "column_weight": np.ones(d) if weight is None else np.array(weight),
        "references": z[:, rows :: math.ceil(references / 256)],
    }
    return (
        {name: array.astype(np.float32) for name, array in arrays.items()},
        x.astype(np.float32),
        z.astype(np.float32),
    )


def scored(arrays, x, z, distance="sqeuclidean", views=VIEWS):
    scorer = Views(views=views)
    ready = scorer.ready(arrays, distance)
    return scorer.score(z, ready, distance, scorer.locate(x, ready))


def check(arrays, x, z, distance="sqeuclidean"):
    found, expected = scored(arrays, x, z, distance), by_hand(x, z, arrays, distance)
    assert found.dtype == np.float32
    steps = np.ptp(arrays["rows"], axis=0).sum() / 32000 * x.shape[1]  # along columns they are small and whole
    for view, values, expected_values in zip(VIEWS, found, expected, strict=True):
        tolerance = {"space": 3e-3, "tails": 1e-4}.get(view, steps)
        np.testing.assert_allclose(values, expected_values, rtol=1e-4, atol=tolerance, err_msg=view)


@pytest.mark.parametrize("references", [2, 3, 4, 5, 6, 9, 10, 11, 14, 15, 60, 300])
def test_the_views_are_their_definitions(references):
    check(*example(references))


@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
def test_for_every_distance(distance):
    check(*example(60), distance)


@pytest.mark.parametrize(("d", "members"), [(1, 1), (2, 5), (40, 2)])
def test_for_any_number_of_columns_and_members(d, members):
    check(*example(60, d=d, members=members))


def test_columns_that_do_not_count():
    check(*example(60, weight=[1, 0, 1, 0]))


def test_ties_in_columns_and_columns_that_never_vary():
    arrays, x, z = example(60)
    for rows in (arrays["rows"], x):
        rows[:, 0], rows[:, 1] = np.round(rows[:, 0]), 3.0
    x[:5, 1] = [2, 4, 3, 3, 1e6]
    check(arrays, x, z)


@pytest.mark.parametrize("copies", [2, 3, 30])
def test_rows_that_stand_several_times_skip_one_copy_of_theirs(copies):
    """The other copies are neighbours at no distance."""
    arrays, x, z = example(60)
    arrays["rows"][20 : 20 + copies] = arrays["rows"][20]
    arrays["references"][:, 20 : 20 + copies] = arrays["references"][:, 20:21]
    x[40:], z[:, 40:] = arrays["rows"], arrays["references"]
    check(arrays, x, z)
    columns, space, _, _ = scored(arrays, x[60:61], z[:, 60:61])
    assert (columns[0] == 0) == (copies > 2)
    assert (space[0] == 0) == (copies > 5)


@pytest.mark.parametrize("views", [("tails",), ("space", "columns"), ("distilled", "tails", "columns")])
def test_some_views_are_those_among_all(views):
    arrays, x, z = example(60)
    whole = dict(zip(VIEWS, scored(arrays, x, z), strict=True))
    np.testing.assert_array_equal(scored(arrays, x, z, views=views), [whole[view] for view in views])


def test_what_lies_beyond_all_references_is_exact():
    arrays, x, z = example(60)
    x[0] = [1e6, 0, 0, 0]
    check(arrays, x, z)
    columns, _, distilled, _ = scored(arrays, x, z)
    assert columns[0] == pytest.approx(1e6, rel=1e-4)
    assert distilled[0] == pytest.approx(1e6, rel=1e-4)


@pytest.mark.parametrize("tile", [1, 7, 40])
def test_a_rows_views_are_the_same_among_any_rows(tile):
    arrays, x, z = example(60)
    scorer = Views()
    ready, whole = scorer.ready(arrays, "sqeuclidean"), scored(arrays, x, z)
    for start in range(0, len(x), tile):
        batch = slice(start, start + tile)
        padded = np.zeros((len(z), 100, z.shape[2]), np.float32)  # products of one size
        padded[:, : len(x[batch])] = z[:, batch]
        found = scorer.score(padded, ready, "sqeuclidean", scorer.locate(x[batch], ready))
        np.testing.assert_array_equal(found, whole[:, batch])


@pytest.mark.parametrize("distance", ["sqeuclidean", "cosine"])
@pytest.mark.parametrize("references", [3, 11, 60])
def test_on_tensors_as_on_an_accelerator(references, distance):
    torch = pytest.importorskip("torch")
    arrays, x, z = example(references)
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    found = scored(tensors, torch.from_numpy(x), torch.from_numpy(z), distance).numpy()
    np.testing.assert_allclose(found, scored(arrays, x, z, distance), rtol=1e-5, atol=1e-5)


# The references ---------------------------------------------------------------------------------------------


def test_references_lie_at_all_distances_from_the_middle_and_the_nearest_to_the_centre_come_first():
    random = np.random.default_rng(0)
    rows, z = random.standard_normal((100, 3)).astype(np.float32), random.standard_normal((2, 100, 4))
    usual = np.arange(10, 100)  # the others are labelled
    norms, center = abs(rows[usual]).sum(axis=1), z.mean(axis=1)
    space = MetricSpace(
        center=center,
        scores=np.empty((2, 100)),
        train=[],
        kept=[],
        not_anomalous=usual,
        column_weight=np.ones(3, np.float32),
        norms=norms,
        prepared=lambda ids: rows[ids],
        embed=lambda ids: np.stack([z[member, own] for member, own in enumerate(ids)]),
        distance="sqeuclidean",
        random=random,
    )
    arrays = Views(references=9).fit(space)
    chosen = [index_of(row, rows) for row in arrays["rows"]]
    ranks = np.argsort(np.argsort(norms))
    assert sorted(ranks[[index - 10 for index in chosen]]) == list(range(5, 90, 10))
    squares = [((z[:, index] - center) ** 2).sum() for index in chosen]
    assert squares == sorted(squares)
    np.testing.assert_array_equal(arrays["references"], z[:, chosen])


# A detector -------------------------------------------------------------------------------------------------


def table(kind, rows):
    """Tables that are small, narrow, constant or full of copies."""
    X = np.random.default_rng(rows).standard_normal((rows, 4))
    if kind == "one column":
        return X[:, :1]
    if kind == "constant":
        X[:, 1:] = [3, -1, 0]
    if kind.startswith("copies"):
        return np.repeat(X, int(kind.split()[1]), axis=0)
    if kind == "a thousand copies":
        return np.concatenate([X, np.repeat(X[:1], 1000, axis=0)])
    if kind == "few values":
        return np.round(X)
    return X


@pytest.mark.parametrize("kind", ["plain", "one column", "constant", "copies 2", "copies 3", "few values"])
@pytest.mark.parametrize("rows", [2, 3, 9, 80])
def test_a_training_row_given_again_has_its_score_alone_and_in_any_batch(kind, rows):
    X = table(kind, rows)
    detector = ADDML(**SMALL).fit(X)
    scores = detector.anomaly_scores_
    assert np.isfinite(scores).all()
    np.testing.assert_array_equal(detector.anomaly_score(X), scores)
    order = np.random.default_rng(0).permutation(len(X))
    np.testing.assert_array_equal(detector.anomaly_score(X[order]), scores[order])
    for row in range(0, len(X), 9):
        assert detector.anomaly_score(X[row : row + 1])[0] == scores[row]


@pytest.mark.parametrize("kind", ["plain", "one column", "copies 2", "copies 3", "copies 100", "a thousand copies"])
def test_what_is_far_from_all_rows_scores_higher_than_any(kind):
    X = table(kind, 40)
    detector = ADDML(**SMALL).fit(X)
    far = np.full((1, X.shape[1]), 40.0)
    assert detector.anomaly_score(far)[0] > detector.anomaly_scores_.max()
    assert detector.is_anomaly(far)[0]


def test_a_row_that_stands_a_thousand_times_is_ordinary():
    X = table("a thousand copies", 40)
    detector = ADDML(**SMALL).fit(X)
    copies = (X[0] == X).all(axis=1)
    assert len(set(detector.anomaly_scores_[copies])) == 1
    assert detector.anomaly_scores_[copies][0] <= detector.anomaly_scores_.min()
    assert not detector.is_anomaly(X[:1])[0]


def test_equal_rows_have_equal_scores():
    X = table("copies 3", 80)
    scores = ADDML(**SMALL).fit(X).anomaly_scores_.reshape(80, 3)
    np.testing.assert_array_equal(scores, scores[:, :1].repeat(3, axis=1))


def test_the_score_is_the_strangest_view_compressed():
    X = table("plain", 80)
    detector = ADDML(**SMALL).fit(X)
    model = detector.model_
    x = model.vectorizer.prepare(X)
    views = by_hand(x, model.encoder.embed(x[None])[:, :80], model.scorer_arrays)
    measured = []
    for view in views:
        middle = np.median(view)
        measured.append((view - middle) / (np.quantile(view, 0.9) - middle))
    highest = np.max(measured, axis=0)
    np.testing.assert_allclose(
        detector.anomaly_scores_, np.sign(highest) * np.log1p(abs(highest)), rtol=1e-2, atol=1e-2
    )


# Arguments --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"references": 7}, r"references=7 must be a whole number of at least 8"),
        ({"references": 100.0}, "whole number"),
        ({"references": True}, "whole number"),
        ({"at_once": 0}, "at_once=0 must be a whole number of at least 1"),
        ({"at_once": 257}, "at most 256"),
        ({"at_once": 100}, "at_once=100 must divide 256"),
        ({"views": ()}, "must be some of columns, space, distilled, tails, each once"),
        ({"views": ("columns", "columns")}, "each once"),
        ({"views": ("columns", "rows")}, "must be some of columns"),
        ({"views": "tails"}, "must be some of columns"),
    ],
)
def test_wrong_arguments_are_named(wrong, match):
    with pytest.raises(ValueError, match=match):
        Views(**wrong).check()


def test_settings_make_the_same_scorer():
    one = Views(references=64, views=["tails", "space"], at_once=8)
    assert Views(**one.settings()) == one
