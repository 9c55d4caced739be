"""Folders of image files: every kind that Pillow writes here, sizes, and files that are none."""

import os
import struct
import sys
import zipfile

import numpy as np
import pytest

from addml.io.image_folder import ImageError, image_files, is_image_folder, read_images

Image = pytest.importorskip("PIL.Image")
GREY = np.array([[0, 50, 100], [150, 200, 250]], np.uint8)


def save(folder, name, pixels, **about):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(np.asarray(pixels))
    image.save(folder / name, **about)


def test_grey_images_keep_their_bytes_and_come_in_the_order_of_their_names(tmp_path):
    save(tmp_path, "b.png", GREY)
    save(tmp_path, "sub/a.png", 255 - GREY)
    save(tmp_path, "A.PNG", np.flipud(GREY))
    save(tmp_path, ".hidden.png", GREY)
    (tmp_path / "notes.txt").write_text("no image")
    pictures = read_images(tmp_path)
    assert pictures.names == ("A.PNG", "b.png", "sub/a.png")
    assert pictures.images.dtype == np.uint8
    np.testing.assert_array_equal(pictures.images[:, 0], [np.flipud(GREY), GREY, 255 - GREY])
    assert pictures.notes == ("ignored, not image files: 1 .txt",)


def test_a_home_folder_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    save(tmp_path / "images", "a.png", GREY)
    assert is_image_folder("~/images")
    assert read_images("~/images").names == ("a.png",)
    with pytest.raises(ImageError, match=": is not a folder"):
        read_images("")


def test_links_to_folders_are_not_followed_and_named(tmp_path):
    save(tmp_path, "sub/a.png", GREY)
    (tmp_path / "sub" / "around").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "b.png").symlink_to(tmp_path / "sub" / "a.png")
    pictures = read_images(tmp_path)
    assert pictures.names == ("b.png", "sub/a.png")
    assert pictures.notes == ("links to folders, not followed: sub/around",)


def test_a_subfolder_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    save(tmp_path, "a.png", GREY)
    (tmp_path / "closed").mkdir()
    scandir = os.scandir

    def refusing(path):
        if os.fspath(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(ImageError, match=r"closed: cannot be read \(Permission denied\)"):
        read_images(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="file names are text on other systems")
def test_a_name_that_is_no_text_is_written_out(tmp_path):
    save(tmp_path, "a.png", GREY)
    os.rename(tmp_path / "a.png", os.fsencode(tmp_path) + b"/\xff\xfe.png")
    pictures = read_images(tmp_path)
    assert pictures.names == (r"\xff\xfe.png",)
    (tmp_path / "b.png").write_bytes(b"")
    assert read_images(tmp_path, skip_broken=True).names == pictures.names


def test_one_image_in_colour_makes_all_of_them_so(tmp_path):
    colour = np.stack([GREY, GREY // 2, GREY // 5], axis=-1)
    save(tmp_path, "colour.png", colour)
    save(tmp_path, "grey.png", GREY)
    pictures = read_images(tmp_path)
    np.testing.assert_array_equal(pictures.images[0], np.moveaxis(colour, 2, 0))
    np.testing.assert_array_equal(pictures.images[1], [GREY] * 3)
    assert pictures.notes == ("grey images among colour images: 1 of 2 images",)
    grey = read_images(tmp_path, channels=1)
    luma = 0.299 * colour[..., 0] + 0.587 * colour[..., 1] + 0.114 * colour[..., 2]
    np.testing.assert_allclose(grey.images[0, 0], luma, atol=0.51)
    assert grey.notes == ("made grey: 1 of 2 images",)


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_what_is_transparent_is_laid_on_white(tmp_path, mode):
    alpha = np.array([[0, 255, 255], [255, 255, 0]], np.uint8)
    save(tmp_path, "clear.png", Image.merge(mode, [Image.fromarray(GREY)] * (len(mode) - 1) + [Image.fromarray(alpha)]))
    pictures = read_images(tmp_path)
    assert pictures.images.shape == (1, len(mode) - 1, 2, 3)
    np.testing.assert_array_equal(pictures.images[0, 0], np.where(alpha == 0, 255, GREY))
    assert pictures.notes == ("transparent pixels made white: 1 of 1 image",)


def test_sixteen_bits_are_not_lost(tmp_path):
    deep = np.array([[0, 257, 258], [65535, 30000, 1]], np.uint16)
    save(tmp_path, "deep.png", deep)
    save(tmp_path, "flat.png", GREY)
    pictures = read_images(tmp_path)
    assert pictures.images.dtype == np.float32
    np.testing.assert_allclose(pictures.images[0, 0], deep / 257, rtol=1e-6)
    np.testing.assert_array_equal(pictures.images[1, 0], GREY)
    assert pictures.notes == ("more than 8 bits, kept as fractions: 1 of 2 images",)


def test_floating_point_numbers_are_taken_as_they_are(tmp_path):
    real = np.array([[0.25, -3.0], [1000.5, 1e-3]], np.float32)
    save(tmp_path, "a.tif", real)
    save(tmp_path, "b.tif", 2 * real)
    pictures = read_images(tmp_path)
    np.testing.assert_array_equal(pictures.images[:, 0], [real, 2 * real])
    assert pictures.notes == ("floating-point pixels, not rescaled: 2 of 2 images",)


def test_floating_point_numbers_have_no_scale_in_common_with_whole_ones(tmp_path):
    save(tmp_path, "a.tif", np.array([[0.25, 1.0]], np.float32))
    save(tmp_path, "b.png", GREY)
    with pytest.raises(ImageError, match=r"a\.tif has floating-point pixels, b\.png 8-bit .* convert them"):
        read_images(tmp_path)


def test_a_transparent_grey_of_sixteen_bits_is_laid_on_white(tmp_path):
    save(tmp_path, "a.png", np.array([[5, 257]], np.uint16), transparency=5)
    pictures = read_images(tmp_path)
    np.testing.assert_array_equal(pictures.images[0, 0], [[255, 1]])
    assert "transparent pixels made white: 1 of 1 image" in pictures.notes


def test_a_lightness_with_two_colour_axes_is_colour(tmp_path):
    save(tmp_path, "lab.tif", Image.fromarray(np.dstack([GREY, GREY, GREY])).convert("LAB"))
    pictures = read_images(tmp_path)
    assert pictures.images.shape == (1, 3, *GREY.shape)
    np.testing.assert_allclose(pictures.images[0], [GREY] * 3, atol=3)  # there and back, in whole steps
    assert pictures.notes == ()


def test_two_colours_and_palettes(tmp_path):
    save(tmp_path, "bits.png", Image.fromarray(GREY > 100))
    np.testing.assert_array_equal(read_images(tmp_path).images[0, 0], np.where(GREY > 100, 255, 0))
    palette = Image.fromarray(np.array([[0, 1, 1]], np.uint8)).convert("P")
    palette.putpalette([10, 20, 30, 40, 50, 60])
    save(tmp_path, "palette/a.gif", palette)
    pictures = read_images(tmp_path / "palette").images[0]
    np.testing.assert_array_equal(np.moveaxis(pictures, 0, -1), [[[10, 20, 30], [40, 50, 60], [40, 50, 60]]])


def test_the_camera_s_turn_is_undone(tmp_path):
    about = Image.Exif()
    about[0x0112] = 6  # turned by a quarter
    save(tmp_path, "turned.png", GREY, exif=about)
    pictures = read_images(tmp_path)
    np.testing.assert_array_equal(pictures.images[0, 0], np.rot90(GREY, -1))
    assert pictures.notes == ()


@pytest.mark.parametrize("value", [b"6\0\0\0", b"\0\0\0\0"])
def test_a_turn_that_is_no_number_turns_nothing(tmp_path, value):
    about = Image.Exif()
    about[0x0112] = 6
    save(tmp_path, "odd.jpg", GREY, exif=about)
    number, text = struct.pack(">HHIHH", 0x0112, 3, 1, 6, 0), struct.pack(">HHI", 0x0112, 2, 1) + value
    content = (tmp_path / "odd.jpg").read_bytes()
    assert number in content
    (tmp_path / "odd.jpg").write_bytes(content.replace(number, text))
    assert read_images(tmp_path).images.shape == (1, 1, 2, 3)


def test_images_of_several_sizes_are_resized_and_it_is_said(tmp_path):
    save(tmp_path, "a.png", np.full((10, 20), 70, np.uint8))
    save(tmp_path, "b.png", np.full((300, 7), 90, np.uint8))
    pictures = read_images(tmp_path)
    assert pictures.images.shape == (2, 1, 64, 64)
    assert (pictures.images[0] == 70).all()
    assert (pictures.images[1] == 90).all()
    assert pictures.notes == ("resized to 64 x 64 pixels (--size): 2 of 2 images",)
    assert read_images(tmp_path, size=(3, 5)).images.shape == (2, 1, 3, 5)
    half = read_images(tmp_path, size=(10, 20))
    assert half.notes == ("resized to 10 x 20 pixels (--size): 1 of 2 images",)


def test_halving_averages(tmp_path):
    checks = np.kron(np.array([[0, 200], [100, 40]]), np.ones((4, 4))).astype(np.uint8)
    save(tmp_path, "a.png", checks)
    small = read_images(tmp_path, size=4).images[0, 0].astype(float)
    np.testing.assert_allclose([small[0, 0], small[0, 3], small[3, 0], small[3, 3]], [0, 200, 100, 40])
    assert small.mean() == pytest.approx(checks.mean(), abs=1)


def test_large_images_of_one_size_are_made_smaller(tmp_path):
    save(tmp_path, "a.png", np.zeros((65, 30), np.uint8))
    assert read_images(tmp_path).images.shape == (1, 1, 64, 64)


def test_broken_files_are_listed_and_skipped_only_where_asked(tmp_path):
    save(tmp_path, "a.png", GREY)
    (tmp_path / "b.png").write_bytes(b"no image at all")
    save(tmp_path, "c.png", np.random.default_rng(0).integers(0, 255, (40, 40)).astype(np.uint8))
    (tmp_path / "c.png").write_bytes((tmp_path / "c.png").read_bytes()[:600])
    (tmp_path / "d.jpg").write_bytes(b"")
    with pytest.raises(
        ImageError, match=r"3 of 4 files cannot be read as images: b\.png \(not an image\), c\.png .*--skip"
    ):
        read_images(tmp_path)
    pictures = read_images(tmp_path, skip_broken=True)
    assert pictures.names == ("a.png",)
    assert pictures.notes[0].startswith("unreadable files left out: b.png (not an image), c.png")
    (tmp_path / "a.png").unlink()
    with pytest.raises(ImageError, match="3 of 3 files cannot be read as images"):
        read_images(tmp_path, skip_broken=True)


def test_an_image_too_large_to_be_one_is_broken(tmp_path):
    save(tmp_path, "a.png", GREY)
    save(tmp_path, "huge.bmp", GREY)
    content = bytearray((tmp_path / "huge.bmp").read_bytes())
    content[18:26] = struct.pack("<ii", 50_000, 50_000)  # width and height in the head of a bitmap
    (tmp_path / "huge.bmp").write_bytes(content)
    with pytest.raises(ImageError, match=r"1 of 2 files cannot be read as images: huge\.bmp \(Image size"):
        read_images(tmp_path)
    assert read_images(tmp_path, skip_broken=True).names == ("a.png",)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_pipe_is_not_waited_for(tmp_path):
    save(tmp_path, "a.png", GREY)
    os.mkfifo(tmp_path / "b.png")
    with pytest.raises(ImageError, match=r"b\.png \(not a regular file\)"):
        read_images(tmp_path)


def test_an_image_of_no_numbers_is_broken(tmp_path):
    save(tmp_path, "a.tif", np.array([[0.5, 2.0]], np.float32))
    save(tmp_path, "b.tif", np.array([[0.5, np.nan]], np.float32))
    with pytest.raises(ImageError, match=r"1 of 2 files cannot be read as images: b\.tif \(holds NaN or infinity\)"):
        read_images(tmp_path)


def test_folders_without_images(tmp_path):
    with pytest.raises(ImageError, match="holds no image files"):
        read_images(tmp_path)
    with pytest.raises(ImageError, match="is not a folder"):
        image_files(tmp_path / "nothing")
    assert not is_image_folder(tmp_path)
    save(tmp_path, "sub/a.png", GREY)
    assert is_image_folder(tmp_path)
    (tmp_path / "part.parquet").write_bytes(b"")
    assert not is_image_folder(tmp_path)


@pytest.mark.parametrize("wrong", [{"size": 0}, {"size": (3,)}, {"size": (3, -1)}, {"size": "3"}, {"channels": 2}])
def test_wrong_shapes(tmp_path, wrong):
    save(tmp_path, "a.png", GREY)
    with pytest.raises(ImageError, match=r"size=|channels="):
        read_images(tmp_path, **wrong)


def test_a_zip_archive_is_read_like_the_folder_it_holds(tmp_path):
    save(tmp_path / "photos", "test/good/b.png", GREY)
    save(tmp_path / "photos", "test/cut/a.png", 255 - GREY)
    save(tmp_path / "photos", "ground_truth/cut/a.png", GREY)
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        for file in sorted((tmp_path / "photos").rglob("*.png")):
            archive.write(file, file.relative_to(tmp_path / "photos"))
        archive.writestr("__MACOSX/test/._a.png", b"")
        archive.writestr("readme.txt", b"no picture")
    assert is_image_folder(tmp_path / "photos.zip")
    packed, plain = read_images(tmp_path / "photos.zip"), read_images(tmp_path / "photos")
    assert packed.names == plain.names == ("test/cut/a.png", "test/good/b.png")
    np.testing.assert_array_equal(packed.images, plain.images)
    assert packed.folder is None  # nothing in a report can link to it
    assert plain.folder == tmp_path / "photos"


def test_an_archive_of_a_table_is_none_of_images_and_names_outside_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "table.zip", "w") as archive:
        archive.writestr("table.csv", "a,b\n1,2\n")
    assert not is_image_folder(tmp_path / "table.zip")
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as archive:
        archive.writestr("../a.png", b"")
    with pytest.raises(ImageError, match=r"'\.\./a\.png', a path outside the archive"):
        read_images(tmp_path / "evil.zip")


def test_one_picture_is_a_folder_of_one(tmp_path):
    save(tmp_path, "a.png", GREY)
    save(tmp_path, "b.png", GREY)
    assert is_image_folder(tmp_path / "a.png")
    assert read_images(tmp_path / "a.png").names == ("a.png",)
    with pytest.raises(ImageError, match="is not a folder, a zip archive or an image"):
        read_images(tmp_path / "a.txt")
