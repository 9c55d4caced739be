"""The command line: parse, call one function of `detection`, print."""

from __future__ import annotations


def main() -> None:
    """Run the command that the arguments name and end with its exit code."""
    try:
        from addml.cli.app import run

        run()
    except KeyboardInterrupt:  # before a command has begun: modules are still read
        raise SystemExit(130) from None
