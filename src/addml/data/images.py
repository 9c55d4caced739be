"""Folders of image files as one array (n, channels, height, width): any size, grey or colour, 8 or 16 bits."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".pbm")
PARQUET = (".parquet", ".pq")
LARGEST = 64  # pixels of a side; images that have one size up to this keep it
DEEP = ("I", "I;16", "I;16B", "I;16L", "I;16N", "F")  # Pillow's modes of more than 8 bits
BITS_16 = 257.0  # of a 16-bit step in an 8-bit one
MOST_LISTED = 5


class ImageError(ValueError):
    """A folder that holds no images, or files that are none."""


@dataclass(frozen=True)
class Pictures:
    """Images of one size with the names of their files, relative to the folder, and what is to be said of them."""

    names: tuple[str, ...]
    images: np.ndarray  # (n, channels, height, width), uint8, or float32 where some file has more than 8 bits
    notes: tuple[str, ...]


def read_images(
    folder: str | os.PathLike[str],
    *,
    size: int | tuple[int, int] | None = None,
    channels: int | None = None,
    skip_broken: bool = False,
) -> Pictures:
    """All images of a folder and its subfolders, in the order of their names.

    Images that all have one size of at most 64 x 64 keep it, others are resized to `size`, a side or (height, width),
    64 if not given. They are grey where all of them are, else RGB; `channels`, 1 or 3, says so otherwise. What is
    transparent is laid on white. Files that cannot be read are an error unless `skip_broken`.
    """
    files = image_files(folder)
    shape, several = _shape(size, channels), f"{folder}: holds no image files ({', '.join(SUFFIXES)})"
    if not files:
        raise ImageError(f"{several}; name a folder of images.")
    opened, broken = _opened(Path(folder), files)
    if broken and (not skip_broken or not opened):
        raise ImageError(_refusal(folder, broken, len(files)))
    notes = [f"left out, as they cannot be read: {_listed(broken)} (--skip-broken)"] if broken else []
    shape = replace(shape, channels=shape.channels or max(one.channels for one in opened))
    shape, resized = _common(shape, opened)
    images = np.stack([one.pixels(shape) for one in opened])
    if not any(one.deep for one in opened):
        images = images.round().astype(np.uint8)
    return Pictures(tuple(one.name for one in opened), images, (*notes, *resized, *_converted(opened, shape)))


def is_image_folder(path: str | os.PathLike[str]) -> bool:
    """Whether this is a folder with at least one image file in it; one with Parquet files beside them is a table."""
    if not os.path.isdir(path) or any(name.lower().endswith(PARQUET) for name in os.listdir(path)):
        return False
    return next(_walk(path), None) is not None


def image_files(folder: str | os.PathLike[str]) -> list[str]:
    """The image files of a folder and its subfolders, relative to it, in the order of their names."""
    if not os.path.isdir(folder):
        raise ImageError(f"{folder}: is no folder; name a folder of images.")
    return sorted(_walk(folder))


def _walk(folder: str | os.PathLike[str]) -> Iterator[str]:
    for place, _, names in os.walk(folder):
        for name in names:
            if name.lower().endswith(SUFFIXES) and not name.startswith("."):
                yield os.path.relpath(os.path.join(place, name), folder)


# One size, one kind -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Shape:
    """What all images are to become; what is None is found from them."""

    channels: int | None
    height: int | None
    width: int | None


@dataclass(frozen=True)
class _Opened:
    """One image as its file holds it."""

    name: str
    values: np.ndarray  # (height, width) or (height, width, 3), 0 to 255
    deep: bool
    transparent: bool

    @property
    def channels(self) -> int:
        return 1 if self.values.ndim == 2 else 3

    @property
    def size(self) -> tuple[int, int]:
        return self.values.shape[0], self.values.shape[1]

    def pixels(self, shape: _Shape) -> np.ndarray:
        """The image as float32 (channels, height, width)."""
        values = self.values
        if shape.channels == 1 and values.ndim == 3:
            values = values @ np.array([0.299, 0.587, 0.114], np.float32)
        layers = values[None] if values.ndim == 2 else np.moveaxis(values, 2, 0)
        layers = np.repeat(layers, 3, axis=0) if shape.channels == 3 and len(layers) == 1 else layers
        return np.stack([_resized(np.ascontiguousarray(layer), shape) for layer in layers])


def _opened(folder: Path, files: Sequence[str]) -> tuple[list[_Opened], list[tuple[str, str]]]:
    """The images that can be read, and the files that cannot, each with the reason."""
    found, broken = [], []
    for name in files:
        try:
            found.append(_open(folder, name))
        except (OSError, ValueError, SyntaxError, EOFError, MemoryError) as error:  # all of these Pillow raises
            broken.append((name, str(error).splitlines()[0] if str(error) else type(error).__name__))
    return found, broken


def _open(folder: Path, name: str) -> _Opened:
    pillow = _pillow()
    with pillow.Image.open(folder / name) as image:
        image.load()
        turned = pillow.ImageOps.exif_transpose(image)
        if turned.mode in DEEP:
            return _Opened(name, np.asarray(turned, np.float32) / np.float32(BITS_16), True, False)
        transparent = "A" in turned.getbands() or "transparency" in turned.info
        flat = _on_white(turned) if transparent else turned
        grey = flat.mode in ("1", "L") or (transparent and turned.mode in ("LA", "La"))
        values = np.asarray(flat.convert("L" if grey else "RGB"), np.float32)
        return _Opened(name, values, False, transparent)


def _on_white(image: Image) -> Image:
    pillow, seen = _pillow(), image.convert("RGBA")
    white = pillow.Image.new("RGBA", seen.size, "white")
    white.alpha_composite(seen)
    return white.convert("RGB")  # type: ignore[no-any-return]


def _resized(layer: np.ndarray, shape: _Shape) -> np.ndarray:
    """One channel in the common size; an average over what becomes one pixel."""
    if layer.shape == (shape.height, shape.width):
        return layer
    pillow = _pillow()
    image = pillow.Image.fromarray(layer.astype(np.float32))
    small = image.resize((shape.width, shape.height), pillow.Image.Resampling.BILINEAR, reducing_gap=3.0)
    return np.asarray(small, np.float32).clip(0, None)


def _shape(size: int | tuple[int, int] | None, channels: int | None) -> _Shape:
    sides = (size, size) if isinstance(size, int) else size
    if sides is not None and (len(sides) != 2 or any(type(side) is not int or side < 1 for side in sides)):
        raise ImageError(f"size={size!r} must be a number of pixels, or (height, width)")
    if channels not in (None, 1, 3):
        raise ImageError(f"channels={channels!r} must be 1 for grey or 3 for RGB; files of images have no other")
    return _Shape(channels, *(sides or (None, None)))


def _common(shape: _Shape, opened: Sequence[_Opened]) -> tuple[_Shape, list[str]]:
    """The size of all images, and how many have to be resized to it, in words."""
    have = Counter(one.size for one in opened)
    if shape.height is None:
        only = next(iter(have)) if len(have) == 1 else (LARGEST + 1, 0)
        height, width = only if max(only) <= LARGEST else (LARGEST, LARGEST)
        shape = replace(shape, height=height, width=width)
    count = sum(count for size, count in have.items() if size != (shape.height, shape.width))
    if not count:
        return shape, []
    return shape, [f"resized to {shape.height} x {shape.width} pixels: {count:,} of {len(opened):,} images (--size)"]


def _converted(opened: Sequence[_Opened], shape: _Shape) -> list[str]:
    """What else was changed, in words."""
    changed = {
        "made grey": sum(one.channels > (shape.channels or 3) for one in opened),
        "grey images beside those in colour": sum(one.channels < (shape.channels or 3) for one in opened),
        "laid on white, being transparent": sum(one.transparent for one in opened),
        "of 16 bits, kept as fractions": sum(one.deep for one in opened),
    }
    return [f"{words}: {count:,} of {len(opened):,} images" for words, count in changed.items() if count]


def _refusal(folder: Any, broken: Sequence[tuple[str, str]], files: int) -> str:
    rest = "mend or remove them, or leave them out with --skip-broken (skip_broken=True)"
    if len(broken) == files:
        rest = "there is no other; are these images?"
    return f"{folder}: {len(broken):,} of {files:,} files cannot be read as images: {_listed(broken)}; {rest}."


def _listed(broken: Sequence[tuple[str, str]]) -> str:
    more = f" and {len(broken) - MOST_LISTED:,} more" if len(broken) > MOST_LISTED else ""
    return ", ".join(f"{name} ({_short(why)})" for name, why in broken[:MOST_LISTED]) + more


def _short(why: str) -> str:
    return "not an image" if "cannot identify" in why else re.sub(r"\s+", " ", why)[:80]


def _pillow() -> Any:
    try:
        import PIL.Image
        import PIL.ImageOps
    except ImportError:
        raise ImportError("image files need Pillow: pip install 'addml[images]'") from None
    return PIL
