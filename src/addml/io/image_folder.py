"""Image files as one array (n, channels, height, width): a folder, a zip archive or one picture, of any size."""

from __future__ import annotations

import io
import os
import re
import stat
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

import numpy as np

from addml.text import counted, listed

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".pbm")
MASKS = "ground_truth"
TABLES = (".parquet", ".pq")
ZIP = ".zip"
LARGEST = 64  # pixels of a side; images that have one size up to this keep it
DEEP = ("I", "I;16", "I;16B", "I;16L", "I;16N", "F")  # Pillow's modes of more than 8 bits
GREY = ("1", "L", "LA", "La", *DEEP)
WHITE_16, BITS_16 = 65535, 257.0  # of 16 bits, and how many of its steps are one of 8
ORIENTATION, TURNED = 0x0112, (5, 6, 7, 8)  # in what a camera writes, and where height and width change places

Result = TypeVar("Result")


class ImageError(ValueError):
    """A folder that holds no images, or files that are none."""


@dataclass(frozen=True)
class Pictures:
    """Images of one size with the names of their files, relative to the folder, and notes on them."""

    names: tuple[str, ...]
    images: np.ndarray  # (n, channels, height, width), uint8, or float32 where some file has more than 8 bits
    notes: tuple[str, ...]
    sizes: tuple[tuple[int, int], ...] = ()  # height and width of each file's own image
    folder: Path | None = None  # that the names are relative to, where a report may link to it


class Shape(NamedTuple):
    """What all images become."""

    channels: int
    height: int
    width: int


class Head(NamedTuple):
    """What the head of a file says, before its pixels are read."""

    file: str
    size: tuple[int, int]  # height and width
    channels: int
    deep: bool
    real: bool  # of floating-point numbers, whose black and white nobody knows
    transparent: bool

    @property
    def name(self) -> str:
        """The name of the file as text that can be written, whatever its bytes are."""
        return _legible(self.file)


def read_images(
    folder: str | os.PathLike[str],
    *,
    size: int | tuple[int, int] | None = None,
    channels: int | None = None,
    skip_broken: bool = False,
    largest: int = LARGEST,
) -> Pictures:
    """All images of a folder and its subfolders, or of a zip archive, in the order of their names; or one picture.

    Images that all have one size of at most 64 x 64 keep it, others are resized to `size`, a side or (height, width),
    64 if not given. They are grey where all of them are, else RGB; `channels`, 1 or 3, says so otherwise. What is
    transparent is laid on white. 16-bit images become fractions of 8 bits, those of floating-point numbers stay as they
    are. Files that cannot be read are an error unless `skip_broken`. Other files and links to folders are passed over.
    """
    return look_at(folder, size=size, channels=channels, largest=largest).read(skip_broken)


def look_at(
    folder: str | os.PathLike[str],
    *,
    size: int | tuple[int, int] | None = None,
    channels: int | None = None,
    largest: int = LARGEST,
) -> Heads:
    """What the heads of all image files of a folder say, before their pixels are read, as `read_images` does."""
    _pillow()
    sides = (size, size) if isinstance(size, int) else size
    if sides is not None and (len(sides) != 2 or any(type(side) is not int or side < 1 for side in sides)):
        raise ImageError(f"size={size!r} must be a number of pixels, or (height, width)")
    if channels not in (None, 1, 3):
        raise ImageError(f"channels={channels!r} must be 1 for grey or 3 for RGB; files of images have no other")
    files, path = image_files(os.path.expanduser(folder)), Path(os.path.expanduser(folder))
    if not files:
        raise ImageError(f"{path}: holds no image files ({', '.join(SUFFIXES)}); name a folder of images.")
    known, broken = _tried(files, lambda file: _head(path, file))
    kinds = {one.real: one.name for one in known}
    if len(kinds) > 1:  # real numbers may be from 0 to 1 or from -1000 to 1000
        raise ImageError(
            f"{path}: {kinds[True]} holds floating-point numbers, {kinds[False]} whole ones of 8 or 16 bits, and "
            "their scales cannot be compared; convert them to one kind, or give each a folder of its own."
        )
    if sides is None:
        own = {one.size for one in known}
        only = next(iter(own)) if len(own) == 1 else (largest + 1, 0)
        sides = only if max(only) <= largest else (largest, largest)
    found = channels or max((one.channels for one in known), default=1)
    return Heads(path, tuple(known), tuple(broken), Shape(found, *sides))


@dataclass(frozen=True)
class Heads:
    """The image files of a folder, and the shape that they are to have."""

    folder: Path
    known: tuple[Head, ...]
    broken: tuple[str, ...]  # files that cannot be read, each with the reason
    shape: Shape

    @cached_property
    def deep(self) -> bool:
        """Whether some image has more than 8 bits."""
        return any(one.deep for one in self.known)

    def read(self, skip_broken: bool) -> Pictures:
        """The images themselves."""
        heads, read = {one.file: one for one in self.known}, list[Head]()
        images = np.empty((len(heads), *self.shape), np.float32 if self.deep else np.uint8)

        def read_next(file: str) -> None:
            images[len(read)] = _layers(self.folder, heads[file], self.shape, self.deep)
            read.append(heads[file])

        _, worse = _tried(list(heads), read_next)
        broken = sorted([*self.broken, *worse])
        if broken and (not skip_broken or not read):
            files = len(self.known) + len(self.broken)
            remedy = "mend or remove them, or leave them out with --skip-unreadable (skip_broken=True)"
            remedy = "there is no other; are these images?" if len(broken) == files else remedy
            words = f"{len(broken):,} of {counted(files, 'file')} cannot be read as images: {listed(broken)}"
            raise ImageError(f"{self.folder}: {words}; {remedy}.")
        left = [f"left out, as they cannot be read: {listed(broken)} (--skip-unreadable)"] if broken else []
        notes = (*left, *_passed_over(self.folder), *self._changes())
        folder = self.folder if self.folder.is_dir() else None
        names, sizes = tuple(one.name for one in read), tuple(one.size for one in read)
        return Pictures(names, images[: len(read)], notes, sizes, folder)

    def _changes(self) -> list[str]:
        """What has to be changed for all images to have one shape."""
        known, (channels, *size) = self.known, self.shape
        counts = {
            f"resized to {size[0]} x {size[1]} pixels (--size)": sum(one.size != tuple(size) for one in known),
            "made grey": sum(one.channels > channels for one in known),
            "grey images beside those in colour": sum(one.channels < channels for one in known),
            "laid on white, being transparent": sum(one.transparent for one in known),
            "of more than 8 bits, kept as fractions": sum(one.deep and not one.real for one in known),
            "of floating-point numbers, taken as they are": sum(one.real for one in known),
        }
        return [f"{words}: {count:,} of {counted(len(known), 'image')}" for words, count in counts.items() if count]


def read_mask(path: Path, size: tuple[int, int]) -> np.ndarray:
    """The pixels (height, width) that a mask marks: all that are not black."""
    one = _head(path.parent, path.name)
    if one.size != size:
        raise ImageError(
            f"{path}: has {one.size[0]} x {one.size[1]} pixels (height x width), its image {size[0]} x {size[1]}; "
            "give a mask of the same size."
        )
    return np.asarray(_layers(path.parent, one, Shape(1, *size), deep=True)[0] > 0)


# Files ------------------------------------------------------------------------------------------------------
def is_image_folder(path: str | os.PathLike[str]) -> bool:
    """Whether this is an image file, or a folder or zip archive of some; beside Parquet files they make a table."""
    path = os.path.expanduser(path)
    if os.path.isfile(path):
        return _is_image(os.path.basename(path)) or (_is_zip(path) and bool(image_files(path)))
    if not os.path.isdir(path) or any(name.lower().endswith(TABLES) for name in os.listdir(path)):
        return False
    return next(_walk(path), None) is not None


def image_files(folder: str | os.PathLike[str]) -> list[str]:
    """The image files of a folder and its subfolders or of a zip archive, in the order of their names; or one file."""
    if os.path.isdir(folder):
        return sorted(_walk(folder))
    if os.path.isfile(folder) and _is_image(os.path.basename(folder)):
        return [os.path.basename(folder)]
    if not _is_zip(folder):
        raise ImageError(f"{folder}: is no folder or zip archive; name one with images, or an image file.")
    with zipfile.ZipFile(folder) as archive:
        files = [one.filename for one in archive.infolist() if not one.is_dir()]
    names = sorted(name for name in files if _is_image(os.path.basename(name)) and not name.startswith("__MACOSX"))
    for name in names:
        if os.path.isabs(name) or ".." in Path(name).parts:  # maps are written under these names
            raise ImageError(f"{folder}: holds {name!r}, which would lie outside; make the archive again.")
    has_masks = not {"test", "train"}.isdisjoint(name.split("/")[0] for name in names)
    return [name for name in names if not (has_masks and name.startswith(f"{MASKS}/"))]


def kinds_of(names: Iterable[str]) -> str:
    """How many files of each kind there are, the most frequent ones: 2 .heic, 1 .txt."""
    kinds = Counter(os.path.splitext(name)[1].lower() or "no extension" for name in names)
    return ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common(4))


def _walk(folder: str | os.PathLike[str]) -> Iterator[str]:
    def refuse(error: OSError) -> None:  # a subfolder that cannot be read must not look like an empty one
        raise ImageError(f"{error.filename}: cannot be read ({error.strerror}); allow it, or move the folder away.")

    for place, folders, names in os.walk(folder, onerror=refuse):
        if place == os.fspath(folder) and MASKS in folders and {"test", "train"} & set(folders):
            folders.remove(MASKS)  # MVTec's layout: masks are no images to rank
        for name in filter(_is_image, names):
            yield os.path.relpath(os.path.join(place, name), folder)


def _is_image(name: str) -> bool:
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


def _is_zip(path: str | os.PathLike[str]) -> bool:
    return os.fspath(path).lower().endswith(ZIP) and zipfile.is_zipfile(path)


def _legible(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _passed_over(folder: Path) -> list[str]:
    """What else is in a folder of images, in words; hidden files are nobody's pictures."""
    others, links = list[str](), list[str]()
    for place, folders, names in os.walk(folder):
        others += [name for name in names if not name.startswith(".") and not _is_image(name)]
        paths = (os.path.join(place, name) for name in folders)
        links += [_legible(os.path.relpath(path, folder)) for path in paths if os.path.islink(path)]
    notes = [f"passed over, being no image files: {kinds_of(others)}"] if others else []
    return notes + ([f"links to folders, not followed: {listed(sorted(links))}"] if links else [])


def _content(folder: Path, name: str) -> Path | IO[bytes]:
    """What Pillow opens: the file, or its bytes in an archive."""
    if _is_zip(folder):
        return io.BytesIO(_archive(folder).read(name))
    path = folder / name if folder.is_dir() else folder
    if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe would be waited for
        raise ValueError("no regular file")
    return path


@lru_cache(maxsize=1)
def _archive(path: Path) -> zipfile.ZipFile:
    """An archive, whose list of files is read once."""
    return zipfile.ZipFile(path)


# Pixels -----------------------------------------------------------------------------------------------------
def _head(folder: Path, name: str) -> Head:
    with _pillow().Image.open(_content(folder, name)) as image:
        mode, turned = image.mode, image.getexif().get(ORIENTATION) in TURNED
        size = image.size if turned else image.size[::-1]
        return Head(name, size, 1 if mode in GREY else 3, mode in DEEP, mode == "F", image.has_transparency_data)


def _layers(folder: Path, one: Head, shape: Shape, deep: bool) -> np.ndarray:
    """An image (channels, height, width), uint8, or float32 from 0 to 255 where some are `deep`."""
    pillow = _pillow()
    with pillow.Image.open(_content(folder, one.file)) as image:
        image.load()
        flat = _flat(pillow.ImageOps.exif_transpose(image), one, "L" if shape.channels == 1 else "RGB")
    if flat.size != (shape.width, shape.height):
        flat = flat.resize((shape.width, shape.height), pillow.Image.Resampling.BILINEAR, reducing_gap=3.0)
    pixels = np.asarray(flat)
    if one.deep and not np.isfinite(pixels).all():
        raise ValueError("holds NaN or infinity")
    layers = pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, 2, 0)
    layers = np.repeat(layers, shape.channels, axis=0) if len(layers) < shape.channels else layers
    return np.ascontiguousarray(layers, np.float32 if deep else np.uint8)


def _flat(image: Any, one: Head, mode: str) -> Any:
    """The image without transparency, in 8 bits, or in fractions of them where it has more; real numbers stay."""
    pillow = _pillow()
    if one.deep:
        pixels = np.array(image, np.float32)
        if one.transparent:
            pixels[pixels == image.info["transparency"]] = WHITE_16
        return pillow.Image.fromarray(pixels if one.real else pixels / np.float32(BITS_16))
    if not one.transparent:
        return image.convert(mode)
    seen = image.convert("RGBA")
    white = pillow.Image.new("RGBA", seen.size, "white")
    white.alpha_composite(seen)
    return white.convert(mode)


def _tried(files: Sequence[str], work: Callable[[str], Result]) -> tuple[list[Result], list[str]]:
    """What comes of the files that can be read, and those that cannot, each with the reason."""
    found, broken = [], []
    for file in files:
        try:
            found.append(work(file))
        except Exception as error:  # of what damaged bytes lead Pillow to there is no list
            why = re.sub(r"\s+", " ", (str(error).splitlines() or [type(error).__name__])[0])[:80]
            broken.append(f"{_legible(file)} ({'not an image' if 'cannot identify' in why else why})")
    return found, broken


def _pillow() -> Any:
    try:
        import PIL.Image
        import PIL.ImageOps
    except ImportError:
        raise ImportError("image files need Pillow: pip install 'addml[images]'") from None
    return PIL
