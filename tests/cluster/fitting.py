"""One process of a gloo group that fits a table on disk together: python fitting.py '{"table": ..., "rank": ...}'."""

import json
import os
import signal
import sys
from datetime import timedelta

import torch.distributed as dist

from addml import model_file
from addml.checkpoint import Checkpoint, Storage
from addml.config import Config
from addml.fit import fit
from addml.learning.group import TorchGroup


def main(table, rank, size, store, settings, output=None, every=0, checkpoint=None, kill=None, memory="2GiB"):
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=size, timeout=timedelta(seconds=60)
    )
    if kill is not None:  # [rank, epoch, "before" or "after" the checkpoint of that epoch]
        original = Checkpoint.save

        def save(self, state, members):
            if kill[:2] == [rank, state.epoch] and kill[2] == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            original(self, state, members)
            if kill[:2] == [rank, state.epoch]:
                os.kill(os.getpid(), signal.SIGKILL)

        Checkpoint.save = save
    storage = Storage(checkpoint, memory=memory)
    model = fit(Config.resolve(settings), table, storage=storage, group=TorchGroup(every))
    if rank == 0 and output is not None:
        model_file.save(model, output)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
