"""Figures of images and pixels in MVTec's layout, against slow definitions of them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.ndimage import label
from sklearn.metrics import roc_auc_score

from addml.errors import AddmlError
from addml.io.image_folder import ImageError, read_mask
from addml.pipeline.evaluation import Layout, levels_of, pixel_figures
from addml.scoring.patches import resized

Image = pytest.importorskip("PIL.Image")


def slow_pro(maps, masks):
    """The mean overlap of all regions at every threshold, averaged up to 30 % of false alarms, one by one."""
    regions = []
    for found, mask in zip(maps, masks, strict=True):
        marks, count = label(mask, np.ones((3, 3)))
        regions += [found[marks == number + 1] for number in range(count)]
    normal = np.concatenate([found[~mask] for found, mask in zip(maps, masks, strict=True)])
    points = [(0.0, 0.0)]
    for threshold in np.unique(maps)[::-1]:
        overlap = np.mean([(region >= threshold).mean() for region in regions])
        points.append(((normal >= threshold).mean(), overlap))
    area = 0.0
    for (x0, y0), (x1, y1) in pairwise(points):
        if x0 >= 0.3:
            break
        end = min(x1, 0.3)
        at_end = y1 if x1 <= 0.3 else y0 + (y1 - y0) * (end - x0) / (x1 - x0)
        area += (end - x0) * (y0 + at_end) / 2
    return area / 0.3


@pytest.fixture
def measured():
    """Maps of 4 x 4 places of eight images, and masks with two regions in some of them, one of which is a pixel."""
    random = np.random.default_rng(0)
    places, masks = random.gamma(2, 1, (8, 4, 4)), np.zeros((8, 20, 24), bool)
    masks[3, 4:9, 5:12], masks[3, 15, 20] = True, True
    masks[5, 2:5, 2:5], masks[5, 5:7, 5:7] = True, True  # they touch at a corner: one region
    masks[6, 10:20, 0:3] = True
    places[3, 1, 1], places[5, 0, 0] = 9.0, 6.0
    return places, np.stack([resized(own, (20, 24)) for own in places]), masks


def test_pixel_figures_are_those_of_their_definitions(measured):
    places, maps, masks = measured
    kinds = ["good", "good", "good", "cut", "good", "hole", "hole", "good"]
    exact = np.unique(maps)
    figures = pixel_figures(zip(kinds, maps, masks, strict=True), exact)
    assert figures[""]["pixel_roc_auc"] == pytest.approx(roc_auc_score(masks.ravel(), maps.ravel()), abs=1e-12)
    assert figures[""]["pro"] == pytest.approx(slow_pro(maps, masks), abs=1e-12)
    for kind in ("cut", "hole"):
        own = np.array([one in ("good", kind) for one in kinds])
        assert figures[kind]["pro"] == pytest.approx(slow_pro(maps[own], masks[own]), abs=1e-12)
        assert figures[kind]["pixel_roc_auc"] == pytest.approx(roc_auc_score(masks[own].ravel(), maps[own].ravel()))
    coarse = pixel_figures(zip(kinds, maps, masks, strict=True), levels_of(places))  # 128 levels here, 65,536 in use
    assert coarse[""]["pro"] == pytest.approx(figures[""]["pro"], abs=0.02)


def test_kinds_without_masks_have_no_figures_of_pixels(measured):
    _, maps, masks = measured
    assert pixel_figures(zip(["good"] * 2, maps[:2], masks[:2], strict=True), np.unique(maps)) == {}


def test_a_mask_of_another_size_and_a_folder_without_the_layout_are_refused(tmp_path):
    Image.fromarray(np.zeros((4, 6), np.uint8)).save(tmp_path / "mask.png")
    with pytest.raises(ImageError, match=r"has 4 x 6 pixels, its image 5 x 6"):
        read_mask(tmp_path / "mask.png", (5, 6))
    with pytest.raises(AddmlError, match="has no folder test/good and train"):
        Layout.of(str(tmp_path), trains=True)
