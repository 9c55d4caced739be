"""The command line: parse options, call the pipeline, write files, print results."""

from __future__ import annotations


def main() -> None:
    """Run `addml` and exit with its code."""
    try:
        from addml.cli.commands import run

        run()
    except KeyboardInterrupt:  # while modules are still being imported
        raise SystemExit(130) from None
