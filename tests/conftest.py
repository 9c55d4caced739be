"""What all tests share."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy is imported: tests run on every core already
settings.register_profile("addml", deadline=None)  # a busy machine's slow example is no error
settings.load_profile("addml")


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real data sets that the environment variable ADDML_DATA names."""
    named = os.environ.get("ADDML_DATA")
    if not named:
        pytest.skip("ADDML_DATA is not set: it names the folder of real data sets")
    folder = Path(named)
    if not folder.is_dir():
        pytest.skip(f"ADDML_DATA={named} is not a folder")
    return folder
