"""Original files from their sources, or from a mirror of them, through pooch."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from addml.data.sets.cache import cache_folder
from addml.data.sets.entries import DataSet
from addml.data.sets.errors import DownloadError, MissingSetError, NoNetworkError, SetError, WrongSetError
from addml.data.sets.resuming import Stage, fetch


def download(one: DataSet, mirror: str | None, stage: Stage) -> Path:
    """The original file, downloaded unless it is there already, of the known hash."""
    pooch, address = _pooch(), address_of(one, mirror)
    folder = cache_folder() / "downloads"
    part = folder / f"{one.path.name}.part"

    def resume(url: str, target: str, _: Any) -> None:
        fetch(url, part, one.title, stage)
        part.replace(target)

    try:
        return Path(pooch.retrieve(address, one.sha256, one.path.name, folder, downloader=resume))
    except NoNetworkError as error:
        raise NoNetworkError(f"{one.name}: {error} {_without_network(one)}") from error
    except DownloadError as error:
        raise DownloadError(f"{one.name}: {error}") from error
    except ValueError as error:  # pooch's, which names both hashes
        raise WrongSetError(f"{one.name}: {address}: {error} Pull again, or from another mirror.") from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise SetError(
            f"{one.name}: {folder} cannot be written: {reason}. Free some space there, or name another folder with "
            "ADDML_CACHE."
        ) from error


def address_of(one: DataSet, mirror: str | None = None) -> str:
    """Where the original file is: at its source, or under the same path of a mirror (or ADDML_MIRROR)."""
    if one.address is None:
        raise MissingSetError(
            f"{one.name}: cannot be downloaded, {one.title} has no address. ADDML_DATA names a folder that holds "
            f"{one.path.as_posix()}."
        )
    base = mirror or os.environ.get("ADDML_MIRROR")
    return base.rstrip("/") + urlsplit(one.address).path if base else one.address


def _pooch() -> Any:
    try:
        import pooch
    except ImportError as error:
        raise ImportError("downloads need pooch: pip install 'addml[data]'") from error
    pooch.get_logger().setLevel(logging.WARNING)
    return pooch


def _without_network(one: DataSet) -> str:
    return (
        "Check the network and the proxy (HTTPS_PROXY), name a mirror (--mirror or ADDML_MIRROR), "
        f"or let ADDML_DATA name a folder that holds {one.path.as_posix()}."
    )
