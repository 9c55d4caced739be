"""What can be wrong with a data set; every message names the set and the remedy."""

from __future__ import annotations


class SetError(ValueError):
    """A data set that cannot be had."""


class UnknownSetError(SetError):
    """A name that no data set has."""


class MissingSetError(SetError):
    """A data set that is neither in ADDML_DATA nor in the cache."""


class WrongSetError(SetError):
    """A file that is not the data set it should be: another hash, another shape, or damaged."""


class DownloadError(SetError):
    """A data set that could not be downloaded."""


class NoNetworkError(DownloadError):
    """A server that cannot be reached."""
