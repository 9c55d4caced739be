"""The commands on a folder of images."""

import csv
import re
from contextlib import nullcontext

import numpy as np
import pytest

from addml.errors import AddmlError
from addml.io.image_folder import Heads
from addml.model import Model
from addml.pipeline import image_source, run
from addml.pipeline.options import Options
from addml.progress import Progress
from tests.cli.running import QUICK

Image = pytest.importorskip("PIL.Image")


def write_photos(folder, count=40, size=(9, 8)):
    """Grey noise with a bright bar on the left; photo-07 has a bright block at the lower right."""
    folder.mkdir()
    random = np.random.default_rng(3)
    for place in range(count):
        pixels = random.integers(0, 40, size).astype(np.uint8)
        pixels[:, :2] += 150
        if place == 7:
            pixels[-3:, -3:] = 255
        Image.fromarray(pixels).save(folder / f"photo-{place:02d}.png")
    return folder


@pytest.fixture
def photos(tmp_path):
    return write_photos(tmp_path / "photos")


def scored(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_detect_ranks_the_images_and_shows_them(addml, photos, tmp_path):
    addml("detect", "photos", *QUICK, "--top", 5).succeeded("photos: 40 images", "photo-07.png", "lower right")
    rows = scored(tmp_path / "photos.scored.csv")
    assert list(rows[0]) == ["file", "row", "score", "rank", "is_anomaly", "p_value", "probability", "reasons"]
    first = next(row for row in rows if row["rank"] == "1")
    assert first["file"] == "photo-07.png"
    assert first["reasons"].startswith("lower right")
    page = (tmp_path / "photos.report.html").read_text()
    assert "highest-scoring training images" in page
    assert "Images kept" in page
    assert not re.search(r"\b[Rr]ows kept|training rows", page)
    assert "img-src data:" in page
    shown = re.findall(r'<img src="data:image/png;base64,[^"]+" alt="([^"]+)"', page)
    assert shown[:2] == ["photo-07.png", "photo-07.png: where its score comes from"]
    assert len(shown) == 2 * 5 + 5  # the strangest with their maps, the most typical
    assert not re.search(r'src="(?!data:)', page)  # nothing is loaded
    links = re.findall(r'<a href="([^#"]+)"', page)
    assert links[0] == "photos/photo-07.png"
    assert all((tmp_path / link).is_file() for link in links)


def test_without_reasons_there_are_no_maps_and_redacted_reports_show_no_image(addml, photos, tmp_path):
    addml("detect", "photos", *QUICK, "--reasons", 0, "--top", 3).succeeded()
    page = (tmp_path / "photos.report.html").read_text()
    assert "where its score" not in page
    assert page.count("<img ") >= 6
    addml("detect", "photos", *QUICK, "--redact").succeeded()
    page = (tmp_path / "photos.report.html").read_text()
    assert "<img " not in page
    assert "photo-07" not in page


def test_a_saved_model_scores_alike_and_resizes_what_is_new(addml, photos, tmp_path):
    addml("detect", "photos", *QUICK, "--model", "m", "--no-report").succeeded()
    before = [row["score"] for row in scored(tmp_path / "photos.scored.csv")]
    addml("score", "photos", "--model", "m").succeeded("40 images")
    assert [row["score"] for row in scored(tmp_path / "photos.scored.csv")] == before
    write_photos(tmp_path / "large", count=3, size=(30, 20))
    addml("score", "large", "--model", "m", "--report", "large.html").succeeded(
        "resized to 9 x 8 pixels (--size): 3 of 3 images"
    )
    assert "<img " in (tmp_path / "large.html").read_text()
    addml("info", "m").succeeded("weights in all members")
    addml("score", "large", "--model", "m", "--size", 9).failed("the model sets the size")
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    addml("score", "table.csv", "--model", "m").failed("fitted to a folder of images")
    addml("diff", "m", "m", "photos").failed("photos: is a folder of images")


def test_fit_says_what_was_read(addml, photos, tmp_path):
    addml("fit", "photos", *QUICK, "--size", "4x6", "--sample", 20).succeeded(
        "40 images", "resized to 4 x 6 pixels (--size): 40 of 40", "trained on 20 of 40 images", "photos.model"
    )
    addml("fit", "photos", *QUICK, "--all-rows").succeeded("trained on 40 images")


def test_broken_files_are_refused_and_skipped(addml, photos, tmp_path):
    (photos / "photo-05.png").write_bytes(b"broken")
    addml("detect", "photos", *QUICK).failed("1 of 40 files cannot be read", "photo-05.png", "--skip-unreadable")
    addml("detect", "photos", *QUICK, "--skip-unreadable").succeeded("39 images", "photo-05.png (not an image)")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"columns": ("a",)}, "--columns does not apply to a folder of images, only to a table or a series"),
        ({"id": ("a",)}, "--id does not apply to a folder of images"),
        ({"label": "a"}, "--label does not apply to a folder of images"),
        ({"train_labels": "a"}, "--train-labels does not apply to a folder of images"),
        ({"time": "t"}, "--time does not apply to a folder of images"),
        ({"memory": "1GiB"}, "--memory does not apply to a folder of images"),
        ({"memory": "2GiB"}, "--memory does not apply to a folder of images"),
        ({"delimiter": ";"}, "--delimiter does not apply to a folder of images"),
        ({"one_sided": ("a:high",)}, "--one-sided does not apply to a folder of images"),
        ({"size": "0"}, "--size 0"),
        ({"size": "3x4x5"}, "--size 3x4x5"),
    ],
)
def test_settings_that_say_nothing_of_images(photos, given, words):
    with pytest.raises(AddmlError, match=words):
        run.fit(Options(str(photos), **given), Progress())


def test_more_pixels_than_memory_holds_are_refused_before_they_are_read(photos, monkeypatch):
    """By hand: two copies of 40 images of 160,000 bytes are 12.8 MB."""
    options = Options(str(photos), size="400", epochs=20)
    monkeypatch.setattr(Heads, "read", lambda self, skip_broken: pytest.fail("pixels were read"))
    monkeypatch.setattr(image_source, "free_memory", lambda: 12 * 10**6)
    with pytest.raises(
        AddmlError,
        match=r"400 x 400 pixels need about 0\.013 GB .* 0\.012 GB are free; use a smaller",
    ):
        run.fit(options, Progress())
    monkeypatch.setattr(image_source, "free_memory", lambda: 64 * 10**9)
    with pytest.raises(pytest.fail.Exception, match="pixels were read"):
        run.fit(options, Progress())


def test_more_images_than_memory_holds_are_not_scored(addml, photos, tmp_path, monkeypatch):
    """By hand: 40 images of 9 x 8 bytes are 2,880 bytes."""
    addml("fit", "photos", *QUICK, "--model", "m").succeeded()
    options = Options(str(photos), model=str(tmp_path / "m"))
    monkeypatch.setattr(image_source, "free_memory", lambda: 2880)
    assert run.score(options, Progress()).findings.rows == 40
    monkeypatch.setattr(image_source, "free_memory", lambda: 2879)
    monkeypatch.setattr(Heads, "read", lambda self, skip_broken: pytest.fail("pixels were read"))
    with pytest.raises(AddmlError, match=r"40 images of 9 x 8 pixels need .* score a part of them at a time"):
        run.score(options, Progress())


class Bars(Progress):
    """Remembers every bar: its words, how long it is, and the steps by which it moves."""

    def __init__(self):
        self.drawn = {}

    def stage(self, words, total, rows_each=1):
        self.drawn[words] = (total, [])
        return nullcontext(self.drawn[words][1].append)


def test_bars_move_while_images_are_scored_and_looked_into(photos, monkeypatch):
    """Twelve at a time are 12, 12, 12 and 4 of 40; in blocks of one on two threads the five listed are 2, 2 and 1."""
    options = Options(str(photos), epochs=1, members=1, top=5, jobs=2)
    whole = run.detect(options, Progress()).findings
    monkeypatch.setattr(image_source, "NUMBERS_AT_ONCE", 12 * 9 * 8)
    monkeypatch.setattr(Model, "block", lambda self, device: 1)
    bars = Bars()
    parts = run.detect(options, bars).findings
    assert bars.drawn["Scoring"] == (40, [12, 12, 12, 4])
    assert bars.drawn["Explaining"] == (5, [2, 2, 1])
    np.testing.assert_allclose(parts.scores, whole.scores, rtol=1e-5, atol=1e-5)
    assert [one.row for one in parts.ranked] == [one.row for one in whole.ranked]


def test_options_that_say_nothing_of_tables(addml, small_csv):
    addml("detect", "small.csv", *QUICK, "--skip-unreadable").failed(
        "--skip-unreadable does not apply to a table, only to a folder of images", code=2
    )


def test_folders_that_teach_nothing(addml, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "a.txt").write_text("a")
    addml("detect", "empty").failed("without Parquet files or images")
    write_photos(tmp_path / "one", count=1)
    with pytest.raises(AddmlError, match=r"one: X holds 1 image; give at least 2"):
        run.fit(Options(str(tmp_path / "one")), Progress())
    (tmp_path / "black").mkdir()
    for place in range(4):
        Image.fromarray(np.zeros((5, 5), np.uint8)).save(tmp_path / "black" / f"{place}.png")
    with pytest.raises(AddmlError, match=r"black: all 4 images of X are the same, every pixel is 0"):
        run.fit(Options(str(tmp_path / "black")), Progress())


def test_a_model_of_a_table_scores_no_images(addml, photos, model):
    addml("score", "photos", "--model", model).failed("was fitted to a table")


def test_images_of_another_scale_than_the_model_knows_are_warned_of(addml, photos, tmp_path):
    addml("fit", "photos", *QUICK, "--model", "m").succeeded()
    (tmp_path / "real").mkdir()
    for place, file in enumerate(sorted(photos.iterdir())[:5]):
        pixels = np.asarray(Image.open(file), np.float32) / 255
        Image.fromarray(pixels).save(tmp_path / "real" / f"{place}.tiff")
    assert "convert the images to the scale of training" in addml("score", "real", "--model", "m").succeeded().err
    assert addml("score", "photos", "--model", "m").succeeded().err == ""
