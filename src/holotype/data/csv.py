"""CSV, TSV and Parquet tables as columns of text; no cell is interpreted.

Cells that a spreadsheet would take for formulas are guarded.
"""

from __future__ import annotations

import codecs
import csv
import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from holotype.errors import InputError
from holotype.utils.text import suggest_path

log = logging.getLogger("holotype")

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet takes a cell that begins like this for a formula; such a cell gets an apostrophe in front."""
FORMULA_STARTS = (*FORMULA, "'")
"""The same in files that are read again, where an apostrophe of one's own must be told from ours."""
SEPARATORS = (",", ";", "\t")
WINDOWS = "cp1252"
ENCODING_BYTES = 1 << 20
PARQUET_BATCH = 65_536
"""Rows of a Parquet file that are read together."""


def read_columns(file: Path) -> dict[str, list[str]]:
    """Return the columns of a CSV, TSV or Parquet file as text, names in lower case.

    Nothing is guessed: "NA", "null" and "001" stay what they are; a missing Parquet value becomes "".
    """
    return read_csv_rows(file)[0]


def read_csv_rows(file: Path) -> tuple[dict[str, list[str]], list[int]]:
    """Return the columns, and the line of the file that each row ends in; rows of a Parquet file count from 1."""
    if file.is_dir():
        raise InputError(f"{file} is a folder; give a CSV, TSV or Parquet file.")
    if not file.is_file():
        raise InputError(f"The file {file} does not exist{suggest_path(file)}; check its name.")
    rows = _all_rows(file)
    if not rows:
        raise InputError(f"{file} is empty; its first line must name the columns, for example path,label.")
    (_, header), *body = rows
    for line, row in body:
        if len(row) > len(header):
            cells = f"{len(row)} cells where the header has {len(header)}"
            raise InputError(f"Line {line} of {file} has {cells}; put cells with a comma in quotes.")
    values = [["".join(row[i : i + 1]) for _, row in body] for i in range(len(header))]
    return dict(zip(column_names(file, header), values, strict=True)), [line for line, _ in body]


def _all_rows(file: Path) -> list[tuple[int, list[str]]]:
    problem, encoding = None, text_encoding(file)
    for strict in (True, False):
        try:
            return list(stream_rows(file, strict, encoding))
        except UnicodeDecodeError as error:
            raise InputError(f"{file} is neither UTF-8 nor Windows text; save it as CSV UTF-8.") from error
        except csv.Error as error:
            problem = problem or error
            if "expected after" not in str(error):  # a blank behind a quote does no harm; an open quote does
                break
    raise InputError(f"{file} is not a readable CSV file: {problem}; correct it there.") from problem


def text_encoding(file: Path) -> str:
    """Return the encoding of a list: UTF-8, UTF-16 where a byte order mark says so, or else that of Windows, in which
    the plain CSV of spreadsheets is written; this is said."""
    if file.suffix.lower() == ".parquet":
        return ""
    with file.open("rb") as stream:
        if stream.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return "utf-16"
        stream.seek(0)
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            while part := stream.read(ENCODING_BYTES):
                if b"\0" in part:
                    raise InputError(f"{file} is no text; save the list as CSV UTF-8.")
                decoder.decode(part)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            log.info(f"{file} is not UTF-8, and is read as Windows text ({WINDOWS}), which Excel's CSV is.")
            return WINDOWS
    return "utf-8-sig"


def stream_rows(file: Path, strict: bool = True, encoding: str = "") -> Iterator[tuple[int, list[str]]]:
    """Yield the line that each row ends in and its cells, the header first; rows that are empty are left out.

    Blanks around quotes are dropped, and so are empty cells at the end of a row: a spreadsheet writes as many as it
    likes, and rows of nothing else. Raises UnicodeDecodeError and csv.Error. encoding: by default `text_encoding`.
    """
    if file.suffix.lower() == ".parquet":
        yield from _parquet_rows(file)
        return
    with file.open(encoding=encoding or text_encoding(file), newline="") as lines:
        header = next((line for line in lines if line.strip("\r\n")), "")
        lines.seek(0)
        usual = "\t" if file.suffix.lower() == ".tsv" else ","
        separator = max((usual, *SEPARATORS), key=header.count)  # what parts the most columns
        reader = csv.reader(lines, delimiter=separator, strict=strict, skipinitialspace=True)
        for row in reader:
            while row and not row[-1]:
                row.pop()
            if row:
                yield reader.line_num, row


def _parquet_rows(file: Path) -> Iterator[tuple[int, list[str]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        parquet, number = pq.ParquetFile(file), 0
        yield number, parquet.schema_arrow.names
        for batch in parquet.iter_batches(PARQUET_BATCH):
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                number += 1
                yield number, [column_text(value) for value in row]
    except (pa.ArrowException, OSError, ValueError) as error:  # ValueError: text that is no UTF-8, odd times
        raise InputError(f"{file} is not a readable Parquet file; write it again.") from error


def column_text(value: object) -> str:
    """Return a value of a Parquet file as text. Missing -> ""; a whole number without its ".0", since pandas stores
    integers with gaps as floats; of bytes the text that they are."""
    if value is None or value != value:
        return ""
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")  # a table tells what is no text
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def column_names(file: Path, header: Sequence[str]) -> list[str]:
    """Return names of columns as they are compared; raises InputError where two are the same."""
    names = [name.strip().lower() for name in header]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"{file} has more than one column called {twice[0]!r}; keep one of them.")
    return names


def is_utf8(text: str) -> bool:
    """Return whether the text can be written: names of files may hold bytes that are no text."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Return rows as the text of a CSV file; None is an empty cell."""
    return "".join(",".join(_quoted(cell) for cell in row) + "\n" for row in rows)


def _quoted(value: object) -> str:
    """Return a cell as it stands in a file. Not csv.writer, which left a lone carriage return bare before 3.13, and
    leaves blanks that readers drop."""
    cell = "" if value is None else str(value)
    bare = not cell.startswith(" ") and not any(sign in cell for sign in '",\r\n')
    return cell if bare else '"' + cell.replace('"', '""') + '"'


def escape_formula(cell: str) -> str:
    """Return a cell that no spreadsheet takes for a formula."""
    return "'" + cell if cell.startswith(FORMULA_STARTS) else cell


def unescape_formula(cell: str) -> str:
    """Return the cell that `escape_formula` was given."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(FORMULA_STARTS) else cell
