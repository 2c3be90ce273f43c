"""Table files as columns of text: CSV, TSV and Parquet, in which nothing is guessed; cells safe for spreadsheets."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from holotype.errors import InputError

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet takes a cell that begins like this for a formula; such a cell gets an apostrophe in front."""
RISKY = (*FORMULA, "'")
"""The same in files that are read again, where an apostrophe of one's own must be told from ours."""


def read_columns(file: Path) -> dict[str, list[str]]:
    """Columns of a CSV, TSV or Parquet file as text, names in lower case.

    Nothing is guessed: "NA", "null" and "001" stay what they are; a missing Parquet value becomes "".
    """
    if file.is_dir():
        raise InputError(f"{file} is a folder; give a CSV, TSV or Parquet file.")
    if not file.is_file():
        raise InputError(f"The file {file} does not exist; check its name.")
    if file.suffix.lower() == ".parquet":
        return _read_parquet(file)
    return _read_csv(file)


def _read_csv(file: Path) -> dict[str, list[str]]:
    delimiter = "\t" if file.suffix.lower() == ".tsv" else ","
    try:
        # utf-8-sig drops the byte order mark that Excel writes
        with file.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, delimiter=delimiter, strict=True)
            rows = [(reader.line_num, row) for row in reader if row]
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 text; save it as CSV UTF-8.") from error
    except csv.Error as error:
        raise InputError(f"{file} is not a readable CSV file: {error}; correct it there.") from error
    if not rows:
        raise InputError(f"{file} is empty; its first line must name the columns, for example path,label.")
    (_, header), *body = rows
    for line, row in body:
        if len(row) != len(header):
            raise InputError(
                f"Line {line} of {file} has {len(row)} cells where the header has {len(header)}"
                f" ({', '.join(header)}); put cells that contain a comma in quotes."
            )
    return _named(file, header, [[row[i] for _, row in body] for i in range(len(header))])


def _read_parquet(file: Path) -> dict[str, list[str]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(file)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{file} is not a readable Parquet file; write it again.") from error
    columns = [[_as_text(v) for v in column.to_pylist()] for column in table.columns]
    return _named(file, table.column_names, columns)


def _as_text(value: object) -> str:
    """Missing -> ""; a whole number without its ".0", since pandas stores integers with gaps as floats."""
    if value is None or value != value:
        return ""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _named(file: Path, header: Sequence[str], columns: list[list[str]]) -> dict[str, list[str]]:
    names = [name.strip().lower() for name in header]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"{file} has more than one column called {twice[0]!r}; keep one of them.")
    return dict(zip(names, columns, strict=True))


def is_utf8(text: str) -> bool:
    """Can the text be written? Names of files may hold bytes that are no text."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def guarded(cell: str) -> str:
    """A cell that no spreadsheet takes for a formula."""
    return "'" + cell if cell.startswith(RISKY) else cell


def bare(cell: str) -> str:
    """The inverse of `guarded`."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(RISKY) else cell
