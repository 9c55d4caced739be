"""ROC-AUC of images and pixels on circuit boards in MVTec's layout: python -m benchmarks.images (needs ADDML_DATA)."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.metrics import roc_auc_score

from addml import ADDML
from addml.io.image_folder import read_images

POLLUTED = 40  # defects among the 400 normal images of the second fit


def masks(folder: Path, names: tuple[str, ...], shape: tuple[int, ...]) -> np.ndarray:
    """The marked pixels of each test image; none of a good one."""
    found = np.zeros((len(names), *shape), bool)
    for mask, name in zip(found, names, strict=True):
        if not name.startswith("good"):
            mask[:] = np.asarray(Image.open(folder / "ground_truth" / name)) > 0
    return found


def main() -> None:
    folder = Path(os.environ["ADDML_DATA"]) / "images" / "pcb"
    train, test = read_images(folder / "train", largest=256), read_images(folder / "test", largest=256)
    marked = masks(folder, test.names, test.images.shape[2:])
    kinds = np.array([name.split(os.sep)[0] for name in test.names])
    start = time.perf_counter()
    detector = ADDML(encoder="pretrained", normal_ratio=1.0, random_state=0).fit(train.images)
    fitted = time.perf_counter()
    scores = detector.anomaly_score(test.images)
    scored = time.perf_counter()
    maps = detector.explain(test.images)
    print(f"fit {fitted - start:.0f} s, {1000 * (scored - fitted) / len(scores):.0f} ms per image")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")
    print(f"image ROC-AUC {roc_auc_score(kinds != 'good', scores):.3f}")
    print(f"pixel ROC-AUC {roc_auc_score(marked.ravel(), maps.ravel()):.3f}")
    for kind in sorted(set(kinds) - {"good"}):
        own = (kinds == "good") | (kinds == kind)
        print(f"  {kind}: {roc_auc_score(kinds[own] != 'good', scores[own]):.3f}")
    bad = np.random.default_rng(0).permutation(np.flatnonzero(kinds != "good"))[:POLLUTED]
    mixed = np.concatenate([train.images, test.images[bad]])
    polluted = ADDML(encoder="pretrained", random_state=0).fit(mixed)
    found = roc_auc_score(np.arange(len(mixed)) >= len(train.images), polluted.anomaly_scores_)
    print(f"{POLLUTED} defects among {len(mixed)} training images: {found:.3f}")


if __name__ == "__main__":
    main()
