"""The command line: parse, call one function of `pipeline.run`, write, print."""

from __future__ import annotations


def main() -> None:
    """Run the command that the arguments name and exit with its code."""
    try:
        from addml.cli.commands import run

        run()
    except KeyboardInterrupt:  # before a command has begun: modules are still being imported
        raise SystemExit(130) from None
