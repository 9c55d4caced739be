"""`python -m benchmarks.images`: anomalies among small images and defects in photographs.

`pcb`: circuit boards in MVTec's layout. `planted`: photographs with planted defects, generated. `fashion`: one class
of Fashion-MNIST against the other nine. Without a name, all three run; pcb and fashion need ADDML_DATA. `metric` tries
metric learning on top of the patches.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path

import numpy as np
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors

from addml import ADDML
from addml.encoders.pretrained import PretrainedNetwork
from addml.scoring.patches import coreset, split_levels
from benchmarks.planted import SETS, planted_set

DATA = Path(os.environ.get("ADDML_DATA", "data")) / "images"
FILE = DATA / "fashion_mnist_25k.npz"
NAMES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot")
POLLUTED = 40  # defects among the 400 normal boards of the second fit
POLLUTION = 0.05  # of other classes among the images of one
RATES = (0.02, 0.05, 0.1)  # alarms


def photographs(normal_ratio: float = 1.0) -> ADDML:
    return ADDML(encoder="pretrained", normal_ratio=normal_ratio, random_state=0)


def pcb() -> None:
    """Circuit boards: image and pixel metrics by kind of defect, with clean and with polluted training images."""
    from addml.io.image_folder import read_images
    from addml.pipeline.evaluation import Layout

    layout = Layout(DATA / "pcb")
    train, test = (read_images(folder, largest=256) for folder in (layout.root / "train", layout.root / "test"))
    start, computed = time.perf_counter(), time.process_time()
    detector = photographs().fit(train.images)
    fitted, used = time.perf_counter(), time.process_time()
    scores = detector.anomaly_score(test.images)
    scored, after = time.perf_counter(), time.process_time()
    print(f"fit {fitted - start:.0f} s ({used - computed:.0f} s of one core), scores", end=" ")
    print(f"{1000 * (scored - fitted) / len(scores):.0f} ms per image ({1000 * (after - used) / len(scores):.0f} ms)")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")
    found, _ = layout.evaluate(test, scores, detector.threshold_, detector.explain(test.images))
    for one in (found | {"kind": "all"}, *found["kinds"]):
        print(f"  {one['kind']}: image ROC-AUC {one['roc_auc']:.3f}", end="")
        print(f", pixel ROC-AUC {one['pixel_roc_auc']:.3f}, PRO {one['pro']:.3f}")
    good = np.array([name.startswith("good") for name in test.names])
    for rate in RATES:
        detector.set_threshold(alarm_rate=rate)
        print(
            f"  alarm rate {rate:.0%}: {(scores[good] > detector.threshold_).mean():.1%} of normal test images flagged"
        )
    bad = test.images[np.random.default_rng(0).permutation(np.flatnonzero(~good))[:POLLUTED]]
    print(f"  {POLLUTED} defects among {len(train.images)} images: {_polluted(train.images, bad):.3f}")


def _polluted(normal: np.ndarray, bad: np.ndarray) -> float:
    """ROC-AUC on the training images when some of them are defective."""
    detector = photographs(2 / 3).fit(np.concatenate([normal, bad]))
    return float(roc_auc_score(np.arange(len(normal) + len(bad)) >= len(normal), detector.anomaly_scores_))


def planted() -> None:
    """Planted defects: 100 training images, 80 test images; 10 defects among 110 in the polluted setting."""
    means = []
    for name in SETS:
        train, test, masks = planted_set(name, 100, 80)
        detector = photographs().fit(train)
        areas = [
            roc_auc_score(masks.any(axis=(1, 2)), detector.anomaly_score(test)),
            roc_auc_score(masks.ravel(), detector.explain(test).ravel()),
            _polluted(train, test[40:50]),
        ]
        means.append(areas)
        print(f"  {name}: image {areas[0]:.3f}, pixel {areas[1]:.3f}, polluted {areas[2]:.3f}", flush=True)
    print("  mean: image {:.3f}, pixel {:.3f}, polluted {:.3f}".format(*np.mean(means, axis=0)))


def fashion() -> None:
    """Each class against the other nine, by the small networks; mean ROC-AUC in percent."""
    data = np.load(FILE)
    x, y = data["x_train"], data["y_train"]
    methods = {"conv": {"encoder": "conv"}, "mlp": {"encoder": "mlp", "learning_rate": 3e-5}}
    for setting, ratio in {"one-class": 1.0, "polluted": 2 / 3}.items():
        areas = {name: list[float]() for name in methods}
        for normal in range(len(NAMES)):
            random = np.random.default_rng([0, normal])
            own, others = (random.permutation(np.flatnonzero(mark)) for mark in (y == normal, y != normal))
            count = round(len(own) * POLLUTION / (1 - POLLUTION)) if setting == "polluted" else 0
            train = x[np.sort(np.concatenate([own, others[:count]]))]
            for name, given in methods.items():
                detector = ADDML(normal_ratio=ratio, random_state=0, **given).fit(train)
                areas[name].append(
                    100 * roc_auc_score(data["y_test"] != normal, detector.anomaly_score(data["x_test"]))
                )
        for name, found in areas.items():
            print(f"  {setting}, {name}: all classes {np.mean(found):.2f}, 5-9 {np.mean(found[5:]):.2f}", flush=True)


def metric() -> None:
    """Image ROC-AUC of patch distances before and after metric learning on top of them."""
    for name in ("screws", "tiles"):
        train, test, masks = planted_set(name, 40, 60)
        network = PretrainedNetwork(train.shape[1:], np.zeros((1, 0), np.float32))
        flat = [network.patches((images.reshape(len(images), -1) - np.float32(127)) / 128) for images in (train, test)]
        totals: dict[str, np.ndarray | float] = {"plain": 0.0, "learned": 0.0}
        for own, new in zip(*(split_levels(one, network.levels) for one in flat), strict=True):
            size, rows = own.shape[2], np.random.default_rng(0).permutation(own.shape[0] * own.shape[1])[:8000]
            known = own.reshape(-1, size)[rows]
            mean, deviation = known.mean(axis=0), known.std(axis=0)
            reference, queries = (known - mean) / deviation, (new.reshape(-1, size) - mean) / deviation
            learned = ADDML.paper(random_state=0).fit(known)
            spaces = {"plain": (reference, queries), "learned": (learned.embed(reference), learned.embed(queries))}
            for space, (references, places) in spaces.items():
                references = references[coreset(references, 2000)]
                maps = NearestNeighbors(n_neighbors=1).fit(references).kneighbors(places)[0].reshape(len(new), -1)
                count = max(1, round(0.01 * maps.shape[1]))
                totals[space] += np.sort(maps, axis=1)[:, -count:].mean(axis=1) / maps.mean()
        areas = {space: roc_auc_score(masks.any(axis=(1, 2)), total) for space, total in totals.items()}
        print(f"  {name}: plain {areas['plain']:.3f}, learned {areas['learned']:.3f}", flush=True)


PARTS = {"pcb": pcb, "planted": planted, "fashion": fashion, "metric": metric}

if __name__ == "__main__":
    for part in sys.argv[1:] or ("pcb", "planted", "fashion"):
        print(part)
        PARTS[part]()
