"""`addml serve`."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from addml.pipeline.options import Computing

Models = Annotated[
    list[str] | None,
    typer.Argument(help="Folders that addml fit wrote; each is offered under its name.", metavar="[MODEL]..."),
]
Host = Annotated[
    str, typer.Option("--host", help="Address to listen at; only this machine reaches the default.", metavar="ADDRESS")
]
Port = Annotated[int, typer.Option("--port", help="Port; 0 for any that is free.", min=0, max=65535, metavar="N")]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        help="What clients must know; one is made up and printed if not given. The environment variable ADDML_TOKEN "
        "does not show in the list of processes.",
        metavar="TEXT",
    ),
]
Limit = Annotated[str, typer.Option("--limit", help="Largest file that is taken.", metavar="SIZE")]
Device = Annotated[str, typer.Option("--device", help="Where to compute: auto, cpu, cuda, ...", metavar="NAME")]


def serve(
    models: Models = None,
    host: Host = "127.0.0.1",
    port: Port = 8765,
    token: Token = None,
    limit: Limit = "200MB",
    device: Device = "auto",
) -> None:
    """Offer models and the inspector in the browser and by REST: score rows, hand in files, look into reports."""
    from addml import parameters
    from addml.server.listen import serve as run

    most = parameters.size("--limit", limit)
    run(models or [], host, port, token or os.environ.get("ADDML_TOKEN") or None, most, Computing(device=device))
