"""`python -m benchmarks.image_pictures`: the pictures of docs/images.md, from Fashion-MNIST.

`folder FOLDER` writes 300 boots and 12 other things as PNG files, for `addml detect FOLDER`. `heat` draws the strangest
and the most typical test images of several classes with their maps into docs/images/heat.png.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from benchmarks.images import FILE, NAMES

PICTURE = Path(__file__).parent.parent / "docs" / "images" / "heat.png"
SHOWN = (9, 5, 2)  # classes
EACH = 6  # images of a row


def folder(target: Path) -> None:
    """Write boots and a few other things as PNG files."""
    from PIL import Image

    data, random = np.load(FILE), np.random.default_rng(0)
    boot = data["y_train"] == NAMES.index("boot")
    chosen = [*random.permutation(np.flatnonzero(boot))[:300], *random.permutation(np.flatnonzero(~boot))[:12]]
    target.mkdir(parents=True)
    for place, row in enumerate(chosen):
        name = NAMES[data["y_train"][row]].lower()
        Image.fromarray(data["x_train"][row]).save(target / f"{name}-{place:03d}.png")
    print(f"{len(chosen)} images in {target}")


def heat() -> None:
    """Draw the strangest and the most typical test images of some classes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    from addml import ADDML

    data = np.load(FILE)
    figure, axes = pyplot.subplots(3 * len(SHOWN), EACH, figsize=(1.2 * EACH, 3.7 * len(SHOWN)))
    for place, normal in enumerate(SHOWN):
        train, test = data["x_train"][data["y_train"] == normal], data["x_test"][data["y_test"] == normal]
        detector = ADDML(encoder="conv", normal_ratio=1.0, random_state=0).fit(train)
        order = np.argsort(-detector.anomaly_score(test))
        strange, typical = test[order[:EACH]], test[order[-EACH:]]
        maps = detector.explain(strange).clip(0)
        rows = zip(("strangest", "where", "most typical"), (strange, strange, typical), strict=True)
        for line, (words, images) in enumerate(rows):
            for column, image in enumerate(images):
                axis = axes[3 * place + line, column]
                axis.imshow(image, cmap="gray", vmin=0, vmax=255)
                if words == "where":
                    axis.imshow(maps[column], cmap="Reds", alpha=0.8 * maps[column] / maps[column].max())
                axis.set_xticks([])
                axis.set_yticks([])
            axes[3 * place + line, 0].set_ylabel(f"{NAMES[normal]}\n{words}", fontsize=8)
    figure.tight_layout(pad=0.4)
    figure.savefig(PICTURE, dpi=80)
    print(PICTURE)


if __name__ == "__main__":
    if sys.argv[1:2] == ["folder"] and len(sys.argv) == 3:
        folder(Path(sys.argv[2]))
    elif sys.argv[1:] == ["heat"]:
        heat()
    else:
        raise SystemExit(__doc__)
