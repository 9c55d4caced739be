"""Everything that can be wrong with a file, by the real command: the exit code, and a message that helps."""

import csv
import os
import resource
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from addml.model_file import FORMAT
from tests.cli.running import QUICK, exit_code, files_in, redirected, write_small

BOM = b"\xef\xbb\xbf"


def test_no_such_file_names_the_nearest_one(addml, small_csv):
    addml("detect", "smal.csv").failed("smal.csv: no such file", "Did you mean 'small.csv'")


def test_an_empty_file(addml, tmp_path):
    (tmp_path / "empty.csv").touch()
    addml("detect", "empty.csv").failed("empty.csv", "empty", code=4)
    assert files_in(tmp_path) == {"empty.csv"}


def test_only_a_header(addml, tmp_path):
    (tmp_path / "header.csv").write_text("a,b,c\n")
    addml("detect", "header.csv").failed("header.csv", "no rows", code=4)


def test_a_cell_as_long_as_a_book_does_not_fill_the_terminal(addml, tmp_path):
    (tmp_path / "long.csv").write_text(f"a,b\n1,{'x' * 100_000}\n2,y\n3,z\n")
    done = addml("evaluate", "long.csv", "--label", "b")
    done.failed("Error: label column 'b': name the value that marks an anomaly", "xx … xx", "'y', 'z'.")
    assert len(done.err) < 1100


def test_one_column_is_enough(addml, tmp_path):
    values = np.random.default_rng(0).normal(0, 1, 200)
    values[17] = 40
    (tmp_path / "one.csv").write_text("x\n" + "\n".join(f"{value:.3f}" for value in values) + "\n")
    done = addml("detect", "one.csv", *QUICK, "--top", 1).succeeded()
    assert " 18 " in done.out


def test_binary_junk_named_csv(addml, tmp_path):
    (tmp_path / "junk.csv").write_bytes(bytes(np.random.default_rng(0).integers(0, 256, 5000, np.uint8)))
    addml("detect", "junk.csv").failed("junk.csv")


def test_mixed_line_ends_and_a_bom(addml, small_csv):
    lines = small_csv.read_bytes().split(b"\n")
    small_csv.write_bytes(BOM + b"".join(line + (b"\r\n" if n % 2 else b"\n") for n, line in enumerate(lines[:-1])))
    addml("detect", "small.csv", *QUICK).succeeded("300 rows", "byte order mark")


def test_latin_1_text(addml, small_csv):
    text = small_csv.read_text().replace("green", "grün")
    small_csv.write_bytes(text.encode("latin-1"))
    addml("detect", "small.csv", *QUICK).succeeded("300 rows", "encoding")


def test_another_encoding_than_was_said(addml, small_csv):
    addml("detect", "small.csv", "--encoding", "utf-16").failed("small.csv: is not utf-16: ", "does not start with BOM")


def test_a_single_row(addml, tmp_path):
    (tmp_path / "one.csv").write_text("a,b\n1,2\n")
    addml("detect", "one.csv").failed("one.csv: holds a single row", "at least two")


def test_a_first_sheet_that_holds_no_table_names_the_others(addml, tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.title = "Cover"
    book.create_sheet("Orders").append(["amount"])
    for line, said, code in (
        ([], "sheet 'Orders' holds a header and no rows: amount. Its other sheets: Cover.", 4),
        (["by"], "sheet 'Cover' holds a header and no rows: by. Its other sheets: Orders.", 4),
        ([7], "holds a single row (sheet: Cover (not read: Orders); --sheet names another)", 1),
    ):
        book["Cover"].append(line)
        book.save(tmp_path / "shop.xlsx")
        addml("detect", "shop.xlsx").failed(said, code=code)


@pytest.mark.slow
def test_ten_thousand_columns(addml, tmp_path):
    values = np.random.default_rng(0).normal(0, 1, (60, 10_000))
    names = ",".join(f"c{column}" for column in range(10_000))
    rows = "\n".join(",".join(f"{value:.2f}" for value in row) for row in values)
    (tmp_path / "wide.csv").write_text(f"{names}\n{rows}\n")
    addml("detect", "wide.csv", "--members", 1, "--epochs", 1, "--reasons", 1, "--top", 3).succeeded("60 rows")


def test_duplicate_column_names(addml, tmp_path):
    write_small(tmp_path / "twice.csv", header="name,size,size,colour,when")
    addml("detect", "twice.csv", *QUICK).succeeded("size_2")


@pytest.mark.parametrize(("line", "found"), [("p,170,70,red", "4"), ("p,170,70,red,2025-03-01,more", "6")])
def test_a_row_with_too_few_or_too_many_fields(addml, small_csv, line, found):
    lines = small_csv.read_text().splitlines()
    lines[150] = line
    small_csv.write_text("\n".join(lines) + "\n")
    addml("detect", "small.csv").failed("line 151", found)


def test_a_label_column_that_does_not_exist(addml, small_csv):
    addml("detect", "small.csv", "--label", "color").failed("no column 'color'", "Did you mean 'colour'", "--label")


def test_a_label_column_that_says_nothing(addml, small_csv):
    addml("evaluate", "small.csv", "--label", "colour").failed("--anomaly-value", "'red'")


def test_a_label_that_the_model_was_trained_on(addml, small_csv, model):
    done = addml("evaluate", "small.csv", "--label", "colour", "--anomaly-value", "red", "--model", model)
    done.failed("was trained on the column 'colour'", "fit it again", "--ignore colour")


@pytest.mark.parametrize("option", ["--columns", "--ignore", "--id"])
def test_a_column_that_does_not_exist(addml, small_csv, option):
    addml("fit", "small.csv", option, "hight").failed(option, "'hight'", "Did you mean 'height'")


@pytest.mark.parametrize("option", ["--output", "--report", "--figures", "--model"])
def test_an_output_that_cannot_be_written_is_found_before_training(addml, small_csv, tmp_path, option):
    addml("detect", "small.csv", "--epochs", 100_000, option, "nowhere/x.csv").failed("nowhere", "does not exist")
    assert files_in(tmp_path) == {"small.csv"}


def test_an_output_without_permission(addml, small_csv, tmp_path):
    target = "/proc/scored.csv" if os.geteuid() == 0 else "locked/scored.csv"  # for root no folder is locked
    (tmp_path / "locked").mkdir(mode=0o500)
    addml("detect", "small.csv", "--epochs", 100_000, "--output", target).failed(target, "cannot be written")


def test_an_output_of_no_known_format(addml, small_csv):
    long = ("--epochs", 100_000)  # found before training
    addml("detect", "small.csv", *long, "--output", "x.xyz").failed("x.xyz", ".parquet")
    addml("detect", "small.csv", *long, "--output", "x.csv.xyz").failed("x.csv.xyz", ".parquet")
    addml("detect", "small.csv", *long, "--output", "x.parquet.gz").failed("x.parquet.gz", "Leave out .gz")
    addml("detect", "small.csv", *long, "--output", "x.csv", "--report", "x.csv").failed("is also the scored table")


def test_a_report_of_no_known_format(addml, small_csv, tmp_path):
    addml("detect", "small.csv", *QUICK, "--report", "r.pdf").failed("r.pdf: a report is HTML or Markdown", ".md")
    addml("detect", "small.csv", *QUICK, "--report", "small.run.toml", "--format", "md").failed(
        "small.run.toml: is also the run record; give the report another name"
    )
    assert files_in(tmp_path) == {"small.csv"}
    addml("detect", "small.csv", *QUICK, "--report", "r.txt", "--format", "md").succeeded()


def test_a_demo_where_no_folder_can_be(addml, small_csv):
    addml("demo", "small.csv").failed("small.csv: cannot be written: File exists")


def test_the_input_is_never_overwritten(addml, small_csv):
    before = small_csv.read_bytes()
    addml("detect", "small.csv", "--output", "./small.csv").failed("never overwritten")
    assert small_csv.read_bytes() == before


@pytest.mark.parametrize(
    ("option", "said"),
    [("--report", "give the report a name, or /dev/stdout to pipe it."), ("--model", "give the model a name.")],
)
def test_a_dash_is_no_name_of_an_output(addml, small_csv, tmp_path, option, said):
    addml("detect", "small.csv", *QUICK, option, "-").failed("'-' is not a file name; " + said)
    assert files_in(tmp_path) == {"small.csv"}


@pytest.mark.parametrize("words", [("--output", "parts/a.parquet"), ("--figures", "parts/figures")])
def test_nothing_is_written_among_the_files_of_a_folder(addml, tmp_path, words):
    (tmp_path / "parts").mkdir()
    pq.write_table(pa.table({"x": np.arange(50.0) ** 0.5}), tmp_path / "parts" / "a.parquet")
    before = (tmp_path / "parts" / "a.parquet").read_bytes()
    addml("detect", "parts", *QUICK, *words).failed("is inside the input folder", "elsewhere")
    assert (tmp_path / "parts" / "a.parquet").read_bytes() == before
    assert files_in(tmp_path / "parts") == {"a.parquet"}


def test_a_full_device(addml, small_csv):
    addml("detect", "small.csv", *QUICK, "--output", "/dev/full").failed("/dev/full", "No space left")


@pytest.mark.parametrize(("words", "named"), [(("detect",), "small.scored.csv"), (("fit",), "small.model")])
def test_a_full_disk_leaves_no_partial_file(addml, tmp_path, words, named):
    """No file may grow over 20 kB, as on a disk with no room for more."""
    write_small(tmp_path / "small.csv", rows=2000)
    most, *rest = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, *rest))
    try:
        done = addml(*words, "small.csv", *QUICK)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, *rest))
    done.failed(named, ": cannot be written: File too large. Free some space")
    assert files_in(tmp_path) == {"small.csv"}


def test_a_model_of_another_version(addml, small_csv, model, tmp_path):
    copy = shutil.copytree(model, tmp_path / "later.model")
    description = copy / "model.json"
    description.write_text(description.read_text().replace(f'"format": {FORMAT}', '"format": 99', 1))
    addml("score", "small.csv", "--model", "later.model").failed("format 99", "update addml")
    addml("info", "later.model").failed("format 99")


def test_no_model_at_all(addml, small_csv):
    addml("score", "small.csv", "--model", "none.model").failed("none.model")
    addml("score", "small.csv").failed("--model", code=2)


def test_a_scored_file_without_one_of_the_columns(addml, model, tmp_path):
    write_small(tmp_path / "other.csv", header="name,height,mass,colour,when")
    addml("score", "other.csv", "--model", model).failed("'weight'", "other.csv")
    assert files_in(tmp_path) == {"other.csv"}


def test_a_text_in_a_column_of_numbers(addml, model, tmp_path):
    path = write_small(tmp_path / "text.csv")
    lines = path.read_text().splitlines()
    lines[200] = lines[200].replace("person-00200,", "person-00200,unknown")
    path.write_text("\n".join(lines) + "\n")
    scored = addml("score", "text.csv", "--model", model, "--quiet").succeeded()
    assert scored.err.startswith("Warning: column 'height': 1 cell is text, not a number, ")
    assert "(row 200)" in scored.err
    place = "text.csv, row 200: column 'height' holds \"unknown"
    addml("score", "text.csv", "--model", model, "--strict").failed(place, "leave the cell empty")
    addml("detect", "text.csv", "--strict").failed(place, "(--strict)")
    addml("detect", "text.csv", "--strict", "--time", "when").failed(
        "--strict does not apply to a series (--time)", code=2
    )


def test_reordered_and_extra_columns_are_fine(addml, model, tmp_path):
    path = write_small(tmp_path / "other.csv")
    rows = [line.split(",") for line in path.read_text().splitlines()]
    path.write_text("\n".join(",".join([*reversed(row), "extra"]) for row in rows) + "\n")
    addml("score", "other.csv", "--model", model, "--output", "a.csv").succeeded()
    write_small(tmp_path / "same.csv")
    addml("score", "same.csv", "--model", model, "--output", "b.csv").succeeded()
    assert (tmp_path / "a.csv").read_text() == (tmp_path / "b.csv").read_text()


def test_wrong_usage_has_its_own_exit_code(addml, small_csv):
    addml("detect", "small.csv", "--members", "none").failed(code=2)
    addml("detect", "small.csv", "--threshold", 1, "--contamination", 0.1).failed("use one of them", code=2)
    addml("detect").failed(code=2)
    addml("unknown").failed(code=2)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("detect", ""), "FILE"),
        (("detect", "small.csv", "--report", ""), "--report"),
        (("detect", "small.csv", "--figures", ""), "--figures"),
        (("detect", "small.csv", "--ignore", "height", "--ignore", ""), "--ignore"),
        (("fit", "small.csv", "--model", ""), "--model"),
        (("compare", "small.csv", "--label", "colour", "--output", ""), "--output"),
    ],
)
def test_an_empty_name_is_refused(addml, small_csv, tmp_path, words, named):
    addml(*words).failed(f"{named} is empty", code=2)
    assert files_in(tmp_path) == {"small.csv"}


def test_a_setting_of_another_kind_in_a_file_is_refused(addml, small_csv, tmp_path):
    (tmp_path / "c.toml").write_text("report = false")
    addml("detect", "small.csv", "--config", "c.toml").failed("report = false", code=2)
    assert files_in(tmp_path) == {"small.csv", "c.toml"}


@pytest.mark.parametrize("option", ["", "--output", "--report", "--model", "--config"])
def test_the_home_of_nobody(addml, small_csv, option):
    """What begins like a home folder and is none is a name like any other."""
    words = ("small.csv", option, "~nobody-at-all/x.csv") if option else ("~nobody-at-all/x.csv",)
    addml("detect", *words).failed("~nobody-at-all", code=2 if option == "--config" else 1)


@pytest.mark.parametrize("words", [("--output", "/dev/stdout", "--no-report"), ("--report", "/dev/stdout")])
def test_what_standard_output_leads_to_is_written_to(addml, small_csv, words):
    done = addml("detect", "small.csv", *QUICK, "--quiet", *words).succeeded("person-00042")
    assert done.out.startswith(("<!doctype html>", '"name","row","score"'))


@pytest.mark.parametrize("words", [("--output", "/dev/stdout", "--no-report"), ("--report", "/dev/stdout")])
def test_a_file_that_standard_output_leads_to_keeps_what_it_holds(small_csv, tmp_path, words):
    target = tmp_path / "kept.txt"
    target.write_text("before\n")
    with target.open("ab") as stream, redirected(1, stream.fileno()):  # as >> does
        assert exit_code(tmp_path, "detect", "small.csv", *QUICK, "-q", *words) == 0
    before, first, *_ = target.read_text().splitlines()
    assert (before, first[:11]) == ("before", '"name","row' if "--output" in words else "<!doctype h")


def test_what_goes_into_a_pipe_leaves_nothing(addml, small_csv, tmp_path):
    """A folder that nobody may write to will do."""
    done = addml("detect", "small.csv", *QUICK, "--no-report", "--output", "/dev/stdout").succeeded()
    assert len(done.out.splitlines()) == 301
    assert {path.name for path in tmp_path.iterdir()} == {"small.csv"}
    addml("detect", "small.csv", *QUICK, "--output", "/dev/stdout", "--report", "r.html").succeeded()
    assert {path.name for path in tmp_path.iterdir()} == {"small.csv", "r.html", "r.run.toml"}


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1"])
def test_a_table_on_standard_output_has_it_for_itself(addml, small_csv, name):
    done = addml("detect", "small.csv", *QUICK, "--output", name, "--no-report").succeeded()
    assert len(list(csv.DictReader(done.out.splitlines()))) == 300
    assert "300 rows, 4 columns used" in done.err
    for words in (("--json",), ("--report", "/dev/stdout")):
        addml("detect", "small.csv", "--output", name, *words).failed("both", "standard", code=2)


def test_one_sided_needs_a_column_and_a_side(addml, small_csv):
    addml("fit", "small.csv", "--one-sided", "height").failed("amount:high")
    addml("fit", "small.csv", "--one-sided", "hight:low").failed("Did you mean 'height'")
    both = ("--one-sided", "height:low", "--one-sided", "height:high")
    addml("fit", "small.csv", *both).failed("'height' is already set to low; remove both")


@pytest.mark.parametrize("content", ["", "name,height\n"])
def test_a_file_without_rows_has_its_own_exit_code(addml, tmp_path, content):
    (tmp_path / "today.csv").write_text(content)
    addml("detect", "today.csv").failed("today.csv", code=4)
