"""A program that fits a detector with a checkpoint in children of its own, some of which it kills.

`python killing.py FOLDER KILLS` prints one JSON object: the model of an undisturbed fit, and, for each kill at a random
moment, the epochs that were kept then and the model that the same call ended with.
"""

import hashlib
import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from addml import ADDML
from addml.disk_fit import prepare  # noqa: F401  (what the children need is imported before they are made)


def make(folder: Path) -> Path:
    table = folder / "table"
    table.mkdir()
    X = np.random.default_rng(0).normal(size=(12_000, 4))
    for number, part in enumerate(np.array_split(X, 3)):
        parquet.write_table(pa.table(list(part.T), names=list("abcd")), table / f"{number}.parquet")
    return table


def model(folder: Path) -> str:
    """A number for the weights, the centre and the scores of a saved detector."""
    from addml import model_file

    document, arrays = model_file.read(folder)
    content = b"".join(arrays[name].tobytes() for name in sorted(arrays))
    return hashlib.sha256(content + repr(document["decision"]).encode()).hexdigest()


def child(table: Path, folder: Path) -> int:
    """Begin a fit in a process of its own."""
    process = os.fork()
    if not process:
        try:
            detector = ADDML.paper(epochs=6, members=2, random_state=0)
            detector.fit(table, checkpoint=folder / "checkpoint", memory="1MiB").save(folder / "model")
        finally:
            os._exit(0)
    return process


def epochs(folder: Path) -> int:
    """How many epochs a checkpoint holds."""
    try:
        return json.loads((folder / "checkpoint" / "model.json").read_text())["checkpoint"]["epoch"]
    except FileNotFoundError:
        return 0


def main() -> None:
    base = Path(sys.argv[1])
    table, moments = make(base), random.Random(1)
    began = time.monotonic()
    os.waitpid(child(table, base), 0)
    lasted = time.monotonic() - began
    found = {"undisturbed": model(base / "model"), "kept": [], "models": [], "left": []}
    for number in range(int(sys.argv[2])):
        folder = base / f"kill-{number}"
        folder.mkdir()
        victim = child(table, folder)
        time.sleep(moments.uniform(0, lasted))
        os.kill(victim, signal.SIGKILL)
        os.waitpid(victim, 0)
        found["kept"].append(epochs(folder))
        os.waitpid(child(table, folder), 0)
        found["models"].append(model(folder / "model"))
        found["left"] += sorted(path.name for path in folder.iterdir() if path.name != "model")
        shutil.rmtree(folder)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
