"""Images from a folder, a zip archive or a single file as one array (n, channels, height, width)."""

from __future__ import annotations

import io
import os
import re
import stat
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

import numpy as np

from addml.io.source import PARQUET_NAMES, Origin, zip_names
from addml.text import counted, listed

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".pbm")
MASKS = "ground_truth"
ZIP = ".zip"
LARGEST = 64  # pixels a side; images that all have one size up to this keep it
DEEP = ("I", "I;16", "I;16B", "I;16L", "I;16N", "F")  # Pillow's modes with more than 8 bits
GREY = ("1", "L", "LA", "La", *DEEP)
WHITE_16, STEPS_16 = 65535, 257.0  # white in 16 bits, and 16-bit steps per 8-bit step
ORIENTATION, TURNED = 0x0112, (5, 6, 7, 8)  # the EXIF tag, and its values that swap height and width

Result = TypeVar("Result")


class ImageError(ValueError):
    """Images that are missing or cannot be read."""


@dataclass(frozen=True)
class Pictures:
    """Images of one size, with their file names relative to the folder."""

    names: tuple[str, ...]
    images: np.ndarray  # (n, channels, height, width), uint8, or float32 if some file has more than 8 bits
    notes: tuple[str, ...]
    sizes: tuple[tuple[int, int], ...] = ()  # height and width of each original image
    folder: Path | None = None  # None for an archive or a single file


class Head(NamedTuple):
    """The properties of an image file, known before its pixels are read."""

    file: str
    size: tuple[int, int]  # height and width
    channels: int
    deep: bool
    is_float: bool  # floating-point numbers, of unknown range
    transparent: bool


def read_images(
    folder: str | os.PathLike[str],
    *,
    size: int | tuple[int, int] | None = None,
    channels: int | None = None,
    skip_broken: bool = False,
    largest: int = LARGEST,
) -> Pictures:
    """All images of a folder with its subfolders or of a zip archive, in the order of their names; or of one file.

    Images that all have one size up to 64 x 64 keep it; others are resized to `size`: a side or (height, width),
    default 64. They stay grey if all are grey and become RGB otherwise, unless `channels` is 1 or 3. Transparent pixels
    become white. 16-bit images become fractions of 8 bits, floating-point images are not rescaled. Unreadable files
    raise an error unless `skip_broken`. Other files and links to folders are ignored and listed in the notes.
    """
    return read_heads(folder, size=size, channels=channels, largest=largest).read(skip_broken)


def read_heads(
    folder: str | os.PathLike[str],
    *,
    size: int | tuple[int, int] | None = None,
    channels: int | None = None,
    largest: int = LARGEST,
) -> Heads:
    """As `read_images`, but the pixels are not read yet."""
    _pillow()
    sides = (size, size) if isinstance(size, int) else size
    if sides is not None and (len(sides) != 2 or any(type(side) is not int or side < 1 for side in sides)):
        raise ImageError(f"size={size!r} must be a number of pixels or (height, width)")
    if channels not in (None, 1, 3):
        raise ImageError(f"channels={channels!r} must be 1 (grey) or 3 (RGB)")
    files, path = image_files(os.path.expanduser(folder)), Path(os.path.expanduser(folder))
    if not files:
        raise ImageError(f"{path}: holds no image files ({', '.join(SUFFIXES)}); name a folder of images.")
    broken = list[str]()
    heads = [head for _, head in _readable(files, lambda file: _read_head(path, file), broken)]
    kinds = {head.is_float: _legible(head.file) for head in heads}
    if len(kinds) > 1:  # floating-point images may range from 0 to 1 or from -1000 to 1000
        raise ImageError(
            f"{path}: {kinds[True]} has floating-point pixels, {kinds[False]} 8-bit or 16-bit ones, and their scales "
            "differ; convert them to one kind, or put each kind into its own folder."
        )
    if sides is None:
        sizes = {head.size for head in heads}
        common = sizes.pop() if len(sizes) == 1 else None
        sides = common if common and max(common) <= largest else (largest, largest)
    channels = channels or max((head.channels for head in heads), default=1)
    return Heads(path, tuple(heads), tuple(broken), (channels, *sides), any(head.deep for head in heads))


@dataclass(frozen=True)
class Heads:
    """The image files of a folder, and the shape to convert them to."""

    folder: Path
    known: tuple[Head, ...]
    broken: tuple[str, ...]  # unreadable files, each with the reason
    shape: tuple[int, int, int]  # channels, height and width
    deep: bool  # whether some image has more than 8 bits

    def read(self, skip_broken: bool) -> Pictures:
        heads, loaded, broken = {head.file: head for head in self.known}, list[Head](), list(self.broken)
        images = np.empty((len(heads), *self.shape), np.float32 if self.deep else np.uint8)
        pixels = _readable(heads, lambda file: _read_pixels(self.folder, heads[file], self.shape, self.deep), broken)
        for file, image in pixels:
            images[len(loaded)] = image
            loaded.append(heads[file])
        broken.sort()
        if broken and (not skip_broken or not loaded):
            n_files = len(self.known) + len(self.broken)
            problem = f"{len(broken):,} of {counted(n_files, 'file')} cannot be read as images: {listed(broken)}"
            remedy = "repair or remove them, or skip them with --skip-unreadable (skip_broken=True)."
            raise ImageError(f"{self.folder}: {problem}; {remedy if len(broken) < n_files else 'are these images?'}")
        skipped = [f"unreadable files left out: {listed(broken)} (--skip-unreadable)"] if broken else []
        notes = (*skipped, *_ignored(self.folder), *self._changes())
        folder = self.folder if self.folder.is_dir() else None
        names = tuple(_legible(head.file) for head in loaded)
        return Pictures(names, images[: len(loaded)], notes, tuple(head.size for head in loaded), folder)

    def _changes(self) -> list[str]:
        """Notes on the changes that give all images one shape."""
        heads, (channels, height, width) = self.known, self.shape
        counts = {
            f"resized to {height} x {width} pixels (--size)": sum(head.size != (height, width) for head in heads),
            "made grey": sum(head.channels > channels for head in heads),
            "grey images among colour images": sum(head.channels < channels for head in heads),
            "transparent pixels made white": sum(head.transparent for head in heads),
            "more than 8 bits, kept as fractions": sum(head.deep and not head.is_float for head in heads),
            "floating-point pixels, not rescaled": sum(head.is_float for head in heads),
        }
        return [f"{change}: {count:,} of {counted(len(heads), 'image')}" for change, count in counts.items() if count]


def read_mask(path: Path, size: tuple[int, int]) -> np.ndarray:
    """The marked (not black) pixels (height, width) of a mask."""
    head = _read_head(path.parent, path.name)
    if head.size != size:
        pixels = f"{head.size[0]} x {head.size[1]} pixels, its image {size[0]} x {size[1]}"
        raise ImageError(f"{path}: has {pixels}; give both the same size.")
    return np.asarray(_read_pixels(path.parent, head, (1, *size), deep=True)[0] > 0)


def is_image_folder(path: str | os.PathLike[str]) -> bool:
    """Whether this is an image file, or a folder or archive of images; a folder with Parquet files is a table."""
    path = os.path.expanduser(path)
    if os.path.isfile(path):
        return _is_image(os.path.basename(path)) or (_is_zip(path) and bool(image_files(path)))
    if not os.path.isdir(path) or any(name.lower().endswith(PARQUET_NAMES) for name in os.listdir(path)):
        return False
    return next(_walk(path), None) is not None


def image_files(folder: str | os.PathLike[str]) -> list[str]:
    """The sorted image files of a folder with its subfolders, or of a zip archive; or the name of one file."""
    if os.path.isdir(folder):
        return sorted(_walk(folder))
    if os.path.isfile(folder) and _is_image(os.path.basename(folder)):
        return [os.path.basename(folder)]
    if not _is_zip(folder):
        raise ImageError(f"{folder}: is not a folder, a zip archive or an image file; name one.")
    files = zip_names(Origin(os.fspath(folder), Path(folder)))
    names = sorted(name for name in files if _is_image(os.path.basename(name)))
    for name in names:
        if os.path.isabs(name) or ".." in Path(name).parts:  # heat maps are written under these names
            raise ImageError(f"{folder}: holds {name!r}, a path outside the archive; make the archive again.")
    has_masks = not {"test", "train"}.isdisjoint(name.split("/")[0] for name in names)
    return [name for name in names if not (has_masks and name.startswith(f"{MASKS}/"))]


def kinds_of(names: Iterable[str]) -> str:
    """The most frequent kinds of files: `2 .heic, 1 .txt`."""
    kinds = Counter(os.path.splitext(name)[1].lower() or "no extension" for name in names)
    return ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common(4))


def _walk(folder: str | os.PathLike[str]) -> Iterator[str]:
    def refuse(error: OSError) -> None:  # an unreadable subfolder is not an empty one
        raise ImageError(f"{error.filename}: cannot be read ({error.strerror}); change its permissions or move it.")

    for parent, folders, names in os.walk(folder, onerror=refuse):
        if parent == os.fspath(folder) and MASKS in folders and {"test", "train"} & set(folders):
            folders.remove(MASKS)  # MVTec's layout: masks are not images to score
        for name in filter(_is_image, names):
            yield os.path.relpath(os.path.join(parent, name), folder)


def _is_image(name: str) -> bool:
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


def _is_zip(path: str | os.PathLike[str]) -> bool:
    return os.fspath(path).lower().endswith(ZIP) and zipfile.is_zipfile(path)


def _legible(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _ignored(folder: Path) -> list[str]:
    """Notes on other files in a folder of images, except hidden ones."""
    others, links = list[str](), list[str]()
    for parent, folders, names in os.walk(folder):
        others += [name for name in names if not name.startswith(".") and not _is_image(name)]
        paths = (os.path.join(parent, name) for name in folders)
        links += [_legible(os.path.relpath(path, folder)) for path in paths if os.path.islink(path)]
    notes = [f"ignored, not image files: {kinds_of(others)}"] if others else []
    return notes + ([f"links to folders, not followed: {listed(sorted(links))}"] if links else [])


def _path_or_bytes(folder: Path, name: str) -> Path | IO[bytes]:
    if _is_zip(folder):
        return io.BytesIO(_archive(folder).read(name))
    path = folder / name if folder.is_dir() else folder
    if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe would block
        raise ValueError("not a regular file")
    return path


@lru_cache(maxsize=1)
def _archive(path: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(path)


def _read_head(folder: Path, name: str) -> Head:
    with _pillow().Image.open(_path_or_bytes(folder, name)) as image:
        mode, turned = image.mode, image.getexif().get(ORIENTATION) in TURNED
        size = image.size if turned else image.size[::-1]
        return Head(name, size, 1 if mode in GREY else 3, mode in DEEP, mode == "F", image.has_transparency_data)


def _read_pixels(folder: Path, head: Head, shape: tuple[int, int, int], deep: bool) -> np.ndarray:
    """An image (channels, height, width) in uint8, or in float32 from 0 to 255 if `deep`."""
    pillow = _pillow()
    channels, height, width = shape
    with pillow.Image.open(_path_or_bytes(folder, head.file)) as image:
        image.load()
        opaque = _opaque(pillow.ImageOps.exif_transpose(image), head, "L" if channels == 1 else "RGB")
    if opaque.size != (width, height):
        opaque = opaque.resize((width, height), pillow.Image.Resampling.BILINEAR, reducing_gap=3.0)
    pixels = np.asarray(opaque)
    if head.deep and not np.isfinite(pixels).all():
        raise ValueError("holds NaN or infinity")
    layers = pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, 2, 0)
    layers = np.repeat(layers, channels, axis=0) if len(layers) < channels else layers
    return np.ascontiguousarray(layers, np.float32 if deep else np.uint8)


def _opaque(image: Any, head: Head, mode: str) -> Any:
    """The image without transparency, in 8 bits or fractions of them; floating-point pixels are not rescaled."""
    pillow = _pillow()
    if head.deep:
        pixels = np.array(image, np.float32)
        if head.transparent:
            pixels[pixels == image.info["transparency"]] = WHITE_16
        return pillow.Image.fromarray(pixels if head.is_float else pixels / np.float32(STEPS_16))
    if not head.transparent:
        return image.convert(mode)
    rgba = image.convert("RGBA")
    background = pillow.Image.new("RGBA", rgba.size, "white")
    background.alpha_composite(rgba)
    return background.convert(mode)


def _readable(files: Iterable[str], read: Callable[[str], Result], broken: list[str]) -> Iterator[tuple[str, Result]]:
    """Each file with the result of `read`; those that fail are added to `broken`, with the reason."""
    for file in files:
        try:
            result = read(file)
        except Exception as error:  # damaged files make Pillow raise anything
            reason = re.sub(r"\s+", " ", (str(error).splitlines() or [type(error).__name__])[0])[:80]
            broken.append(f"{_legible(file)} ({'not an image' if 'cannot identify' in reason else reason})")
        else:
            yield file, result


def _pillow() -> Any:
    try:
        import PIL.Image
        import PIL.ImageOps
    except ImportError:
        raise ImportError("image files need Pillow: pip install 'addml[images]'") from None
    return PIL
