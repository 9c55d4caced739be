"""`make demo`: the same as `addml demo`."""

import runpy
import sys

if __name__ == "__main__":
    sys.argv.insert(1, "demo")
    runpy.run_module("addml", run_name="__main__")
