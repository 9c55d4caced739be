"""Delimited text: what is detected, noted and read."""

from __future__ import annotations

import bz2
import datetime
import gzip
import io
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from addml.io.read import ReadError, ReadResult, csv_columns, open_batches, read_table
from benchmarks import dialects


def read(folder: Path, content: str | bytes, name: str = "t.csv", **options: Any) -> ReadResult:
    """The table of a file with this content."""
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_table(path, **options)


def types(result: ReadResult) -> dict[str, str]:
    return {field.name: str(field.type) for field in result.table.schema}


@pytest.mark.parametrize(
    ("delimiter", "name"), [(",", "comma"), (";", "semicolon"), ("\t", "tab"), ("|", "bar"), (" ", "space")]
)
def test_delimiter_is_found_and_said(tmp_path: Path, delimiter: str, name: str) -> None:
    text = "\n".join(delimiter.join(row) for row in [("a", "b", "c"), ("1", "2.5", "x"), ("3", "4.5", "7")])
    result = read(tmp_path, text)
    assert result.table.to_pydict() == {"a": [1, 3], "b": [2.5, 4.5], "c": ["x", "7"]}
    assert f"delimiter: {name}" in result.notes
    assert "header: line 1" in result.notes
    assert result.notes[-1] == "read: 2 rows, 3 columns"


def test_text_with_commas_does_not_mislead_a_tab_separated_file(tmp_path: Path) -> None:
    result = read(tmp_path, "name\tprice\nSmith, John\t5\nDoe, Jane, Dr\t6\nplain\t7\n", "t.tsv")
    assert result.table.to_pydict() == {"name": ["Smith, John", "Doe, Jane, Dr", "plain"], "price": [5, 6, 7]}


def test_lists_in_cells_do_not_mislead_a_comma_separated_file(tmp_path: Path) -> None:
    result = read(tmp_path, "film,tags,year\nA,x;y,1999\nB,x,2001\nC,x;y;z,2002\n")
    assert result.table["tags"].to_pylist() == ["x;y", "x", "x;y;z"]


@pytest.mark.parametrize("quote", ["", '"', "'"])
def test_marks_in_the_text_of_every_row_do_not_mislead_a_comma_separated_file(tmp_path: Path, quote: str) -> None:
    contents = [f"failure; uid={row}; tty=ssh" for row in range(30)]
    lines = [f"{row},{quote}{content}{quote}" for row, content in enumerate(contents)]
    result = read(tmp_path, "\n".join(["line,content", *lines]))
    assert result.table.to_pydict() == {"line": list(range(30)), "content": contents}
    assert "delimiter: comma" in result.notes


def test_marks_in_quotes_do_not_mislead_a_file_without_a_header(tmp_path: Path) -> None:
    lines = [f'{row},"a;b",{row}.5' for row in range(30)]
    assert read(tmp_path, "\n".join(lines)).table["x1"].to_pylist() == ["a;b"] * 30


def test_a_title_above_a_table_does_not_hide_its_delimiter(tmp_path: Path) -> None:
    result = read(tmp_path, "Sales of May\n" + "1;2,5;x\n" * 20)
    assert result.table.num_rows == 20
    assert result.table["x1"].to_pylist() == [2.5] * 20
    assert "above the table: 1 line not read (--skip-rows 0 reads them)" in result.notes


@pytest.mark.parametrize(
    "above", ["Sales\nof May, 2026\n\n", "Sales,,\n,,\n", "# made by x\n# at 10:00\n", 'A "quoted title\n']
)
def test_lines_above_a_table_are_found(tmp_path: Path, above: str) -> None:
    body = "".join(f"{n},{n}.5,w{n % 3}\n" for n in range(20))
    result = read(tmp_path, above + "id,amount,word\n" + body)
    assert result.table.column_names == ["id", "amount", "word"]
    assert result.table["amount"].to_pylist() == [n + 0.5 for n in range(20)]


def test_a_header_that_is_too_short_is_no_title(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="line 2: too many fields, 4 where 2 are expected"):
        read(tmp_path, "a,b\n" + "x,y,z,1\n" * 20)


def test_lines_are_skipped_as_told(tmp_path: Path) -> None:
    text = "p,q,r\n7,8,9\na,b,c\n1,2,3\n"
    assert read(tmp_path, text, skip_rows=2).table.to_pydict() == {"a": [1], "b": [2], "c": [3]}
    with pytest.raises(ReadError, match="line 3: too many fields"):
        read(tmp_path, "Title\n\n" + "a,b\n" + "1,2\n" * 5, skip_rows=0)


def test_a_header_of_r_leaves_out_the_row_names(tmp_path: Path) -> None:
    result = read(tmp_path, '"a","b"\n"1",5.5,2\n"2",6.5,3\n"3",7.5,4\n')
    assert result.table.to_pydict() == {"x0": [1, 2, 3], "a": [5.5, 6.5, 7.5], "b": [2, 3, 4]}


def test_negative_numbers_of_accountants(tmp_path: Path) -> None:
    text = 'n,amount\na,"(1,234.50)"\nb,"2,000.00"\nc,(5.25)\nd,\u22127\ne,3.5-\n'
    assert read(tmp_path, text).table["amount"].to_pylist() == [-1234.5, 2000, -5.25, -7, -3.5]


def test_separator_line_of_excel(tmp_path: Path) -> None:
    result = read(tmp_path, "sep=;\r\na;b\r\n1;2\r\n")
    assert result.table.to_pydict() == {"a": [1], "b": [2]}
    assert "header: line 2" in result.notes


def test_one_column_with_a_gap_keeps_its_rows(tmp_path: Path) -> None:
    assert read(tmp_path, "value\n1\n\n3\n").table.to_pydict() == {"value": [1, None, 3]}


def test_one_column_of_times_is_not_parted_at_the_space(tmp_path: Path) -> None:
    result = read(tmp_path, "when\n2024-01-01 10:00:00\n2024-01-02 11:30:00\n")
    assert result.table["when"].to_pylist()[1] == datetime.datetime(2024, 1, 2, 11, 30)


def test_one_column_of_decimal_commas(tmp_path: Path) -> None:
    assert read(tmp_path, "value\n1,5\n2,25\n").table.to_pydict() == {"value": [1.5, 2.25]}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("5,6\n7,8\n", ["x0", "x1"]),
        ("red,5\nblue,6\nred,7\n", ["x0", "x1"]),
        ("2024-01-01,5\n2024-01-02,6\n", ["x0", "x1"]),
        ("5,?\n7,8\n", ["x0", "x1"]),
        ("1,2,3\n4,5,6\n", ["x0", "x1", "x2"]),
        ("a,b\nx,y\n", ["a", "b"]),
        ("a,b\nx,\n", ["a", "b"]),
        ("0,1,2\n0.5,0.6,0.7\n", ["0", "1", "2"]),
        ("country,2019,2020,2021\nFR,1,2,3\n", ["country", "2019", "2020", "2021"]),
        (",a,b\n0,1,2\n1,3,4\n", ["x0", "a", "b"]),
    ],
)
def test_header_or_none(tmp_path: Path, text: str, names: list[str]) -> None:
    result = read(tmp_path, text)
    assert result.table.column_names == names
    assert result.table.num_rows == text.count("\n") - (names[-1] != f"x{len(names) - 1}")


@pytest.mark.parametrize("text", ["a;b\n1,5;2\n", "sep=|\na|b\n1|2\n", "a,a,\n1,2,3\n", "1\t2\n3\t4\n", "a\n1\n"])
def test_columns_are_known_by_the_first_rows_alone(tmp_path: Path, text: str) -> None:
    file = tmp_path / "t.csv"
    file.write_text(text)
    assert csv_columns(file) == open_batches(file).schema.names
    assert csv_columns(file, header=False) == open_batches(file, header=False).schema.names


def test_no_header_is_said(tmp_path: Path) -> None:
    assert "header: none found, the columns are called x0 to x1" in read(tmp_path, "5,6\n7,8\n").notes


def test_what_the_caller_knows_comes_first(tmp_path: Path) -> None:
    result = read(tmp_path, "1.5;2\n3.5;4\n", delimiter=";", header=True, decimal=".")
    assert result.table.to_pydict() == {"1.5": [3.5], "2": [4]}
    assert read(tmp_path, "a,b\nc,d\n", header=False).table.to_pydict() == {"x0": ["a", "c"], "x1": ["b", "d"]}


def test_quoted_cells(tmp_path: Path) -> None:
    result = read(tmp_path, 'id,text\n1,"a, ""b"" and\nc"\n2,plain\n')
    assert result.table.to_pydict() == {"id": [1, 2], "text": ['a, "b" and\nc', "plain"]}


def test_single_quotes_are_found_and_said(tmp_path: Path) -> None:
    result = read(tmp_path, "id,text\n1,'a, b'\n2,'c'\n3,'d, e, f'\n")
    assert result.table["text"].to_pylist() == ["a, b", "c", "d, e, f"]
    assert "quotes: single" in result.notes


def test_backslash_before_a_quote(tmp_path: Path) -> None:
    result = read(tmp_path, 'id,text,n\n1,"say \\"a, b\\" now",5\n2,"x",6\n')
    assert result.table["text"].to_pylist() == ['say "a, b" now', "x"]


def test_inches_are_not_quotes(tmp_path: Path) -> None:
    result = read(tmp_path, 'id\tsize\n1\t5" pipe\n2\t" odd\n3\tx\n', "t.tsv")
    assert result.table["size"].to_pylist() == ['5" pipe', '" odd', "x"]
    assert "quotes: none, they are part of the text" in result.notes


@pytest.mark.parametrize(
    ("codec", "expected"),
    [
        ("utf-8", "UTF-8"),
        ("utf-8-sig", "UTF-8 with a byte order mark"),
        ("utf-16", "UTF-16"),
        ("utf-16-le", "UTF-16 without a byte order mark"),
        ("utf-16-be", "UTF-16 without a byte order mark"),
        ("utf-32", "UTF-32"),
        ("latin-1", "Windows-1252"),
    ],
)
def test_encoding_is_found_and_said(tmp_path: Path, codec: str, expected: str) -> None:
    result = read(tmp_path, "größe,ort\n1.5,Köln\n2.5,Orléans\n".encode(codec))
    assert result.table.to_pydict() == {"größe": [1.5, 2.5], "ort": ["Köln", "Orléans"]}
    assert any(note.startswith(f"encoding: {expected}") for note in result.notes)


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path) -> None:
    assert read(tmp_path, "ort,n\nKöln,1\n".encode("utf-8-sig"), encoding="utf-8").table.column_names == ["ort", "n"]
    bare = read(tmp_path, "1,2\n3,4\n".encode("utf-8-sig"), encoding="utf-8", header=False)
    assert bare.table.to_pydict() == {"x0": [1, 3], "x1": [2, 4]}


def test_windows_1252_keeps_the_euro_sign(tmp_path: Path) -> None:
    assert read(tmp_path, "a,b\n1,5 €\n".encode("cp1252")).table["b"].to_pylist() == ["5 €"]


def test_byte_that_windows_1252_does_not_have(tmp_path: Path) -> None:
    assert read(tmp_path, b"a,b\n1,\x81\n").table["b"].to_pylist() == ["\x81"]


def test_latin_1_that_shows_only_after_the_first_rows(tmp_path: Path) -> None:
    body = b"a,b\n" + b"1,plain\n" * 60_000
    result = read(tmp_path, body + b"2,K\xf6ln\n")
    assert result.table["b"].to_pylist()[-1] == "Köln"
    assert "encoding: not utf-8 throughout, so read as cp1252" in result.notes
    result = read(tmp_path, body + b"2,\x81\n")
    assert result.table["b"].to_pylist()[-1] == "\x81"


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lambda raw: pa.compress(raw, "zstd", asbytes=True)])
def test_compression_is_told_by_content(tmp_path: Path, pack: Any) -> None:
    result = read(tmp_path, pack(b"a,b\n1,2\n"), "t.csv.packed")
    assert result.table.to_pydict() == {"a": [1], "b": [2]}
    assert any(note.startswith("compression: ") for note in result.notes)


def test_mixed_line_ends(tmp_path: Path) -> None:
    result = read(tmp_path, b"a,b\r\n1,2\n3,4\r5,6\r\n")
    assert result.table.to_pydict() == {"a": [1, 3, 5], "b": [2, 4, 6]}


def test_messy_european_export(tmp_path: Path) -> None:
    text = (
        "Datum;Betrag;Menge;Ort;Notiz\r\n"
        '31.12.2024;1.234,50;-3;Köln;"a; b"\r\n'
        "01.02.2025;12,25;NA;?;\r\n"
        "02.02.2025;-0,5;7;Bonn;x\r\n"
    )
    result = read(tmp_path, text.encode("utf-8-sig"))
    assert result.table["Betrag"].to_pylist() == [1234.5, 12.25, -0.5]
    assert result.table["Menge"].to_pylist() == [-3, None, 7]
    assert result.table["Ort"].to_pylist() == ["Köln", None, "Bonn"]
    assert result.table["Notiz"].to_pylist() == ["a; b", None, "x"]
    assert result.table["Datum"].to_pylist()[0] == datetime.datetime(2024, 12, 31)
    assert "decimal mark: comma" in result.notes
    assert "dates of Datum: day first" in result.notes
    assert "numbers of Betrag: '.' between thousands, decimal mark ','" in result.notes
    assert any(note.startswith("missing values: 3 cells") for note in result.notes)


def test_quoted_thousands_of_an_english_file(tmp_path: Path) -> None:
    result = read(tmp_path, 'item,price\na,"1,234"\nb,"12,345,678.5"\nc,7\n')
    assert result.table["price"].to_pylist() == [1234.0, 12345678.5, 7.0]
    assert "decimal mark: comma" not in result.notes


def test_numbers_that_turn_into_text_later_stay_text_and_are_said(tmp_path: Path) -> None:
    rows = 'a,"1,234"\n' * 40_000
    result = read(tmp_path, f"item,price\n{rows}b,dear\n")
    assert types(result)["price"] == "string"
    assert result.table["price"].to_pylist()[-1] == "dear"
    assert "numbers of price: later rows hold other text" in result.notes


def test_addresses_and_versions_are_not_numbers(tmp_path: Path) -> None:
    result = read(tmp_path, "ip,version\n10.0.0.1,1.2.3\n192.168.1.20,1.2.4\n")
    assert set(types(result).values()) == {"string"}


def test_digits_with_zeros_before_them_are_codes_and_keep_them(tmp_path: Path) -> None:
    text = "post,zero,padded,month\n00501,0,007.5,12\n94105,10,112.5,01\n,7,008.5,03\n"
    result = read(tmp_path, text)
    assert result.table.to_pydict() == {
        "post": ["00501", "94105", None],
        "zero": [0, 10, 7],
        "padded": [7.5, 112.5, 8.5],
        "month": [12, 1, 3],
    }
    assert "codes: post, digits with leading zeros or 0x, read as text" in result.notes
    assert read(tmp_path, "n,flags\n1,0x1F\n2,0x02\n3,\n").table["flags"].to_pylist() == ["0x1F", "0x02", None]
    numbers = read(tmp_path, text, codes=False)
    assert numbers.table["post"].to_pylist() == [501, 94105, None]
    assert not any(note.startswith("codes") for note in numbers.notes)


@pytest.mark.parametrize(
    ("cells", "days", "note"),
    [
        (("12/31/2024", "01/02/2024"), [(12, 31), (1, 2)], "dates of when: month first"),
        (("31/12/2024", "01/02/2024"), [(12, 31), (2, 1)], "dates of when: day first"),
        (("01/02/2024", "03/04/2024"), [(1, 2), (3, 4)], "dates of when: month first (a guess)"),
        (("2024/12/31", "2024/01/02"), [(12, 31), (1, 2)], "dates of when: year first"),
        (("1/2/2024 3:04 PM", "12/31/2024 1:00 AM"), [(1, 2), (12, 31)], "dates of when: month first"),
    ],
)
def test_dates_that_are_not_iso(tmp_path: Path, cells: tuple[str, str], days: list[tuple[int, int]], note: str) -> None:
    result = read(tmp_path, "when,n\n" + "".join(f"{cell},1\n" for cell in cells))
    assert [(day.month, day.day) for day in result.table["when"].to_pylist()] == days
    assert note in result.notes


def test_the_whole_column_decides_whether_the_day_comes_first(tmp_path: Path) -> None:
    result = read(tmp_path, "when,n\n" + "01/02/2024,1\n" * 5000 + "13/02/2024,1\n")
    assert result.table["when"].to_pylist()[0] == datetime.datetime(2024, 2, 1)
    assert "dates of when: day first" in result.notes


def test_each_column_of_dates_is_decided_by_itself(tmp_path: Path) -> None:
    table = read(tmp_path, "a,b,c\n01/02/2024,01/02/2024,1\n31/12/2024,12/31/2024,2\n").table
    assert table["a"].to_pylist() == [datetime.datetime(2024, 2, 1), datetime.datetime(2024, 12, 31)]
    assert table["b"].to_pylist() == [datetime.datetime(2024, 1, 2), datetime.datetime(2024, 12, 31)]


def test_a_decimal_comma_in_the_file_means_day_first_where_nothing_else_tells(tmp_path: Path) -> None:
    result = read(tmp_path, "when;n\n01/02/2024;1,5\n03/04/2024;2,5\n")
    assert result.table["when"].to_pylist()[0] == datetime.datetime(2024, 2, 1)
    assert "dates of when: day first (a guess)" in result.notes


def test_dates_with_a_time_zone_stay_text_for_the_whole_column_to_decide(tmp_path: Path) -> None:
    cells = ["2024-05-01T12:00+02:00", "2024-05-02T12:00+02:00"]
    table = read(tmp_path, "when,n\n" + "".join(f"{cell},1\n" for cell in cells)).table
    assert table["when"].to_pylist() == cells


def test_afternoon(tmp_path: Path) -> None:
    result = read(tmp_path, "when,n\n1/2/2024 3:04 PM,1\n")
    assert result.table["when"].to_pylist() == [datetime.datetime(2024, 1, 2, 15, 4)]


def test_dates_that_contradict_each_other_stay_text(tmp_path: Path) -> None:
    assert types(read(tmp_path, "when,n\n13/01/2024,1\n01/13/2024,2\n"))["when"] == "string"


def test_gap_marks(tmp_path: Path) -> None:
    cells = ["", "NA", "NaN", "null", "n/a", "?", "-", "None", "#DIV/0!"]
    result = read(tmp_path, "n,word\n" + "".join(f"{cell},w\n" for cell in cells) + "1.5,w\n")
    assert result.table["n"].to_pylist() == [None] * len(cells) + [1.5]
    assert any(note.startswith("missing values: 9 cells") and note.endswith("n 9") for note in result.notes)


def test_repeated_and_blank_names(tmp_path: Path) -> None:
    result = read(tmp_path, "a,a, a ,,a_2\n1,2,3,4,5\n")
    assert result.table.to_pydict() == {"a": [1], "a_3": [2], "a_4": [3], "x3": [4], "a_2": [5]}
    assert any("'a' is called 'a_3'" in note for note in result.notes)


def test_chosen_columns_in_the_order_asked_for(tmp_path: Path) -> None:
    assert read(tmp_path, "a,b,c\n1,2,3\n", columns=["c", "a"]).table.to_pydict() == {"c": [3], "a": [1]}


def test_ten_thousand_columns(tmp_path: Path) -> None:
    names = [f"a_rather_long_column_name_{position}" for position in range(10_000)]
    rows = [",".join(str(row + position) for position in range(10_000)) for row in range(3)]
    result = read(tmp_path, "\n".join([",".join(names), *rows]))
    assert result.table.shape == (3, 10_000)
    assert result.table[names[9_999]].to_pylist() == [9_999, 10_000, 10_001]


def test_line_ends_in_quotes_that_come_after_the_first_rows(tmp_path: Path) -> None:
    plain, broken = "1,plain\n" * 50_000, '2,"two\nlines"\n' * 200_000
    result = read(tmp_path, f"a,b\n{plain}{broken}")
    assert result.table.num_rows == 250_000
    assert result.table["b"].to_pylist()[-1] == "two\nlines"


def test_cell_longer_than_a_block(tmp_path: Path) -> None:
    result = read(tmp_path, "a,b\n" + "1,x\n" * 70_000 + "2," + "y" * 5_000_000 + "\n3,z\n")
    assert [len(text) for text in result.table["b"].to_pylist()[-2:]] == [5_000_000, 1]


def test_unknown_extension_is_looked_into(tmp_path: Path) -> None:
    assert read(tmp_path, "a;b\n1;2\n", "table.weird").table.to_pydict() == {"a": [1], "b": [2]}


@pytest.mark.parametrize("content", [b"a,b\n1,2\n", gzip.compress(b"a,b\n1,2\n", mtime=0), b'{"a": 1, "b": 2}\n'])
def test_standard_input(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert read_table("-").table.to_pydict() == {"a": [1], "b": [2]}


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        (
            "cp1252",
            "Name,Ort\nMüller,Köln\nJosé,Málaga\nFrançois,Besançon\nZoë,Düsseldorf\nJürgen,Zürich\n",
        ),
        ("cp1252", "Name,Ort\nMüller,Köln\n"),
        ("cp1250", "Jméno,Město\nNovák,Plzeň\nDvořák,Žďár nad Sázavou\nKučera,Třebíč\nŘezníček,České Budějovice\n"),
        ("cp1250", "Imię,Miasto\nJan,Wrocław\nEwa,Białystok\nPiotr,Gdynia\n"),
        ("cp1251", "Имя,Город\nИванов,Москва\nПетров,Санкт-Петербург\nСидоров,Казань\n"),
        ("koi8_r", "Имя,Город\nИванов,Москва\nПетров,Санкт-Петербург\nСидоров,Казань\n"),
        ("cp1253", "Όνομα,Πόλη\nΓιώργος,Αθήνα\nΜαρία,Θεσσαλονίκη\n"),
        ("shift_jis", "名前,都市\n田中,東京\n鈴木,大阪\n佐藤,名古屋\n"),
        ("gb18030", "姓名,城市\n王伟,北京\n李娜,上海\n张敏,广州\n"),
        ("euc_kr", "이름,도시\n김민수,서울\n이영희,부산\n"),
    ],
)
def test_encodings_beyond_utf8_are_detected(tmp_path: Path, encoding: str, text: str) -> None:
    header, *rows = (line.split(",") for line in text.splitlines())
    table = read(tmp_path, text.encode(encoding), header=True).table
    assert table.column_names == header
    assert [list(row.values()) for row in table.to_pylist()] == rows


def test_utf8_with_a_letter_of_another_encoding_names_the_line(tmp_path: Path) -> None:
    text = "city,n\n" + "Köln,1\n" * 10
    with pytest.raises(ReadError, match="line 12: is not UTF-8, but the rest is"):
        read(tmp_path, text.encode() + b"K\xf6ln,2\n")
    late = "city,n\nKöln,0\n" + "Bonn,1\n" * 60_000
    with pytest.raises(ReadError, match="line 60003: byte 0xf6 is not utf-8"):
        read(tmp_path, late.encode() + b"K\xf6ln,2\n")


def test_a_late_letter_decides_where_all_before_is_ascii(tmp_path: Path) -> None:
    result = read(tmp_path, b"city,n\n" + b"Bonn,1\n" * 60_000 + b"K\xf6ln,2\n")
    assert result.table["city"].to_pylist()[-1] == "Köln"
    assert "encoding: not utf-8 throughout, so read as cp1252" in result.notes


@pytest.mark.parametrize("quote", ["'", '"'])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_quotes_that_few_cells_need(tmp_path: Path, quote: str, end: str) -> None:
    lines = ["item,n", *(f"bolt {row},{row}" for row in range(20)), f"{quote}nut, steel{quote},20"]
    assert read(tmp_path, end.join(lines)).table["item"].to_pylist()[-1] == "nut, steel"


TITLES = {
    "titles": ["Report", "printed 2026-01-02", ""],
    "titles of full width": ["Report,,", "printed 2026-01-02,,", ",,"],
    "comments": ["# Report", "# in thousands, not audited"],
}


@pytest.mark.parametrize("above", TITLES.values(), ids=TITLES)
@pytest.mark.parametrize("header", [["item,n,share"], []], ids=["header", "no header"])
def test_what_stands_above_a_table_is_not_read(tmp_path: Path, above: list[str], header: list[str]) -> None:
    body = [f"bolt,{row},0.{row}" for row in range(1, 10)]
    result = read(tmp_path, "\n".join([*above, *header, *body]))
    assert result.table.column_names == (["item", "n", "share"] if header else ["x0", "x1", "x2"])
    assert result.table.column(1).to_pylist() == list(range(1, 10))
    assert f"above the table: {len(above)} lines not read (--skip-rows 0 reads them)" in result.notes


def test_a_first_row_of_text_is_no_second_header(tmp_path: Path) -> None:
    table = read(tmp_path, "name,,age\nBob,x,unknown\n" + "Al,y,5\n" * 20).table
    assert table.num_rows == 21


def test_drawn_dialects_are_read_right(tmp_path: Path) -> None:
    for number, drawn in enumerate(islice(dialects.dialects(seed=5), 40)):
        path = tmp_path / f"{number}.csv"
        path.write_bytes(drawn.content)
        assert dialects.outcome(dialects.by_addml, path, drawn) == "right", drawn.content[:500]


def test_drawn_damage_is_refused_or_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialects, "DAMAGED", 2)
    for number, drawn in enumerate(dialects.damaged(seed=5)):
        path = tmp_path / f"{number}{drawn.suffix}"
        path.write_bytes(drawn.content)
        outcome = dialects.outcome(dialects.by_addml, path, drawn)
        assert outcome == ("refused" if drawn.rows is None else outcome), drawn.kind
        assert outcome in ("right", "refused"), drawn.kind
