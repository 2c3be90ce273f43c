"""Lists as people hold them: dialects, paths of other machines, what is refused; and names that mean one class."""

import logging
import unicodedata
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from holotype.data.csv import csv_text, stream_rows
from holotype.data.labels import (
    read_csv_table,
    read_list,
    read_sample_info,
    similar_names,
    stream_list,
    unsorted_names,
    write_sample_file,
)
from holotype.data.load import load_table, stream_paths
from holotype.data.paths import find_images, in_quotes, relative, unquoted
from holotype.errors import InputError

from .test_load import rows, touch, write


def numbered(labels: list[str]) -> str:
    return "path,label\n" + "".join(f"{i}.png,{label}\n" for i, label in enumerate(labels))


def test_labels_stay_text_and_may_look_like_formulas(tmp_path: Path) -> None:
    """In a CSV file an apostrophe stands before such; in Parquet a label is what it is, and a number its name."""
    touch(tmp_path, *(f"{i}.png" for i in range(7)))
    table = read_csv_table(write(tmp_path / "l.csv", numbered(["NA", "null", "1", "001", "nan", "", " x "])))
    assert table.label.tolist() == ["NA", "null", "1", "001", "nan", "", "x"]
    assert table.known == ("001", "1", "NA", "nan", "null", "x")
    names = ["'=1+1", "''quoted", "'Oumuamua", "-x", "'-x"]
    table = read_csv_table(write(tmp_path / "l.csv", numbered(names)))
    assert table.label.tolist() == ["=1+1", "'quoted", "'Oumuamua", "-x", "-x"]
    for labels, read in ((names, names), ([3, None, 12], ["3", "", "12"])):
        frame = pd.DataFrame({"path": [f"{i}.png" for i in range(len(labels))], "label": labels})
        frame.to_parquet(tmp_path / "l.parquet")
        assert read_csv_table(tmp_path / "l.parquet").label.tolist() == read


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffpath,label\n鳥 1.png,Größe\n",
        "file_name,label\r\n鳥 1.png,Größe\r\n\r\n",
        'Path , Label\n"鳥 1.png","Größe"',
        "label,path,extra\nGröße,./鳥 1.png,7\n",
        "path;label\n鳥 1.png;Größe\n",
        "\ufeffpath;label;note\r\n鳥 1.png;Größe;7,5\r\n",
        "path\tlabel\n鳥 1.png\tGröße\n",
        'path, label\n "鳥 1.png" , "Größe" \n',
        "path,label\n 鳥 1.png , 'Größe' \n",
        "path,label\n鳥 1.png,Größe\n鳥 1.png,Größe\n",
        "path,label\n.\\鳥 1.PNG,Größe\n",
    ],
)
def test_csv_dialects(text: str, tmp_path: Path) -> None:
    touch(tmp_path, "鳥 1.png")
    for encoding in ("utf-8", "utf-16"):
        if encoding == "utf-8" or not text.startswith("\ufeff"):
            table = read_csv_table(write(tmp_path / "l.csv", text, encoding))
            assert rows(table, tmp_path) == {"鳥 1.png": "Größe"}


def test_truth_containers_and_paths_alone(tmp_path: Path) -> None:
    touch(tmp_path, "a.png")
    np.savez(tmp_path / "pack.npz", x=np.zeros((2, 4, 4), np.uint8))
    table = read_csv_table(write(tmp_path / "l.csv", "path,label,truth\na.png,x,x\npack.npz#1,,y\n"))
    assert table.labelled.tolist() == [True, False]
    assert table.to_frame()["truth"].tolist() == ["x", "y"]
    assert read_csv_table(write(tmp_path / "p.csv", "path\na.png\n")).label.tolist() == [""]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("what;label\na.png;x\n", "no column 'path' or 'file_name', only 'what', 'label'"),
        ("path,note\na.png,x\n", "no column 'label', only 'path', 'note'"),
        ("path,label\na.png,x,y\n", "Line 2 of .* has 3 cells where the header has 2"),
        ("path,label,label\na.png,x,y\n", "more than one column called 'label'"),
        ("path,label\na.png,x\na.png,y\n", r"more than once .* 'a.png' \(line 2: 'x', line 3: 'y'\)"),
        ("path,label,truth\na.png,x,x\na.png,x,y\n", "'x / x', line 3: 'x / y'"),
        ("path,label\nb.png,x\na.png,y\nc.png,y\n", r"2 of the 3 .*'b.png' \(line 2\), 'c.png' \(line 4\)"),
        ("path,label\n,\n\nfox/9.png,fox\n", r"'fox/9.png' \(line 4\)"),
        ("path,label\n,x\n", "Line 2 of .* has no path"),
        ("path,label\n", "lists no image"),
        ("", "is empty"),
        ('path,label\n"a.png,x\n', "not a readable CSV"),
        (b"path,label\na.png,Gr\x81\xdfe\n", "neither UTF-8"),
    ],
)
def test_bad_files_say_what_is_wrong(text: str | bytes, message: str, tmp_path: Path) -> None:
    touch(tmp_path, "a.png")
    (tmp_path / "l.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=message):
        read_csv_table(tmp_path / "l.csv")
    for name in ("", "absent.csv"):
        with pytest.raises(InputError, match=r"folder|does not exist"):
            read_list(tmp_path / name)


def test_empty_cells_and_the_same_row_twice_say_nothing(tmp_path: Path) -> None:
    """Rows and columns of nothing at the end, and rows whose last cells are empty and not written."""
    root = touch(tmp_path / "photos", "fox/1.png", "owl/1.png", "owl/2.png")
    text = "path;label;group;;\nfox/1.png;fox;n-1;;\n;;;;\nowl/1.png;owl\nowl/2.png\n ; ;;;\nfox\\1.png;fox\n"
    table = load_table(root, write(tmp_path / "l.csv", text))
    assert rows(table, root) == {"fox/1.png": "fox", "owl/1.png": "owl", "owl/2.png": ""}


def test_rows_without_an_image_may_be_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = touch(tmp_path / "photos", "1.png", "2.png", "3.png")
    file = write(root / "l.csv", "path,label\n1.png,x\n9.png,x\n2.png,y\n8.png,z\n")
    with pytest.raises(InputError, match=r"2 of the 4 .*'9.png' \(line 3\), '8.png' \(line 5\).*--skip"):
        load_table(root, file)
    with caplog.at_level(logging.INFO, "holotype"):
        both = load_table(root, file, skip_missing=True)
        alone = load_table(file, skip_missing=True)
    assert rows(both, root) == {"1.png": "x", "2.png": "y", "3.png": ""}
    assert rows(alone, root) == {"1.png": "x", "2.png": "y"}
    assert both.known == ("x", "y")
    assert [line.startswith("Left out: 2 of the 4 ") for line in caplog.messages] == [True, True]
    with pytest.raises(InputError, match="None of the images"):
        load_table(write(tmp_path / "m.csv", "path,label\n7.png,x\n"), skip_missing=True)


def test_labels_of_heaps_are_taken_away_and_accents_of_a_mac_are_the_same_letters(tmp_path: Path) -> None:
    root = touch(tmp_path / "photos", "fox/1.png", "Unsorted/2.png", "misc/3.png")
    table = load_table(root, unlabelled=["unsorted", "misc"])
    assert rows(table, root) == {"Unsorted/2.png": "", "fox/1.png": "fox", "misc/3.png": ""}
    assert table.known == ("fox",)
    file = write(tmp_path / "l.csv", "path,label\nfox/1.png,fox\nmisc/3.png,?\n")
    assert load_table(root, file, unlabelled=["?"]).known == ("fox",)
    with pytest.raises(InputError, match="did you mean Unsorted"):
        load_table(root, unlabelled=["unsort"])
    apart = unicodedata.normalize("NFD", "Goéland")
    root = touch(tmp_path / "mac", f"{apart}/1.png", f"{apart}/2.png", "fox/1.png", "heap/3.png")
    assert load_table(root).known == ("Goéland", "fox", "heap")
    assert load_table(root, unlabelled=[apart]).known == ("fox", "heap")
    text = f"path,label\n{apart}/1.png,{apart}\nGoéland/2.png,Goéland\nfox/1.png,fox\n"
    assert load_table(root, write(tmp_path / "l.csv", text)).known == ("Goéland", "fox")


def test_a_sample_is_written_and_known_again_and_a_column_weight_alone_makes_none(tmp_path: Path) -> None:
    """Somebody's list of animals may say what they weigh, and need not be a number."""
    file, animals = tmp_path / "sample.parquet", tmp_path / "animals.parquet"
    columns = {"path": ["a.jpg", "b.jpg"], "label": ["", "fox"], "weight": [2.5, 1.0], "cell": [0, 3]}
    write_sample_file(file, columns, {"seed": 4})
    assert pd.read_parquet(file).to_dict("list") == columns
    assert read_sample_info(file) == {"seed": 4}
    pd.DataFrame({"path": ["a.jpg"], "label": [""], "weight": [12.0]}).to_parquet(animals)
    (tmp_path / "broken.parquet").write_bytes(b"nothing")
    for name in ("animals.parquet", "broken.parquet", "absent.parquet"):
        assert read_sample_info(tmp_path / name) is None
    touch(tmp_path, "a.png")
    assert load_table(write(tmp_path / "l.csv", "path,label,weight\na.png,fox,heavy\n")).weight is None


PLAIN = {
    "paths.csv": "path\na.png\nb c.png\n",
    "labels.csv": 'label,path\nx,a.png\n,"deep/d,e.png"\n',
    "named.csv": "file_name,label,truth\ndeep/../a.png,x,y\n",
    "tabs.tsv": "path\tlabel\r\na.png\tx\r\nb c.png\t\r\n",
    "points.csv": "path;label\na.png;x\n\nb c.png;y\n",
    "mark.csv": "\ufeffPath,Label\na.png,x\n",
    "quote.csv": 'path\n"quote"".png"\n',
    "short.csv": "path,label\na.png\n",
    "pack.csv": "path\nx.npz#0\nx.npz#1\n",
    "list.parquet": {"label": ["x", None], "path": ["a.png", "b c.png"]},
}
ODD = {
    "missing.csv": "path\na.png\nabsent.png\n",
    "twice.csv": "path,label\na.png,x\n./a.png,x\n",
    "box.csv": 'path,label,box\na.png,,"0,0,0.5,0.5"\n',
    "inside.csv": "path\na.png#xywh=percent:0,0,50,50\n",
    "windows.csv": "path\ndeep\\d,e.png\n",
    "empty.csv": "path\n",
    "long.csv": "path,label\na.png,x,y\n",
    "column.csv": "what\na.png\n",
    "more.csv": "path,note\na.png,fox\n",
    "nothing.csv": "",
    "address.csv": "path\ns3://bucket/a.png\n",
    "latin.csv": "path\nKäfer.png\n",
    "gap.parquet": {"label": ["x", None], "path": ["a.png", None]},
}


@pytest.mark.parametrize("name", [*PLAIN, *ODD])
def test_a_plain_list_is_the_table_in_a_stream_and_others_are_left_to_it(name: str, tmp_path: Path) -> None:
    touch(tmp_path, "a.png", "b c.png", "deep/d,e.png", 'quote".png')
    (tmp_path / "x.npz").touch()
    content, file = (PLAIN | ODD)[name], tmp_path / name
    if isinstance(content, dict):
        pd.DataFrame(content).to_parquet(file)
    else:
        file.write_bytes(content.encode("latin1" if name == "latin.csv" else "utf-8"))
    found = stream_list(str(file))
    if name in ODD:
        assert found is None
        return
    assert found is not None
    table = load_table(file)
    assert (list(found.each), found.root) == (list(table.path), table.root)
    write(tmp_path / "wide.csv", "path\na.png\n", "utf-16")
    assert list(stream_paths(tmp_path / "wide.csv").each) == [str(tmp_path / "a.png")]


BASE = Path("/photos")
IMAGES = ("fox/1.jpg", "fox/2.JPG", "badger/1.jpg", "badger/Köln.jpg", "loose.jpg", "deep/down/owl/7.jpg")


def meant(*given: str, images: tuple[str, ...] = IMAGES) -> list[str | None]:
    there = {str(BASE / image) for image in images}
    found, guessed = find_images(given, (BASE,), there.__contains__, lambda: sorted(there))
    assert all(found[row] is not None for row in guessed)
    return [None if path is None else str(Path(path).relative_to(BASE)) for path in found]


@pytest.mark.parametrize(
    ("given", "image"),
    [
        *(
            (way, "fox/1.jpg")
            for way in ("fox/1.jpg", "./fox//1.jpg", "fox\\1.jpg", ' "fox/1.jpg" ', "FOX/1.JPG")
        ),
        *((f"{drive}fox\\1.jpg", "fox/1.jpg") for drive in ("C:\\Users\\me\\photos\\", "\\\\server\\x\\")),
        *(("/elsewhere/old/fox/2.jpg", "fox/2.JPG"), ("/elsewhere/loose.jpg", "loose.jpg")),
        (unicodedata.normalize("NFD", "badger/Köln.jpg"), "badger/Köln.jpg"),
        *((owl, "deep/down/owl/7.jpg") for owl in ("7.jpg", "birds/owl/7.jpg")),
        # several images of that name, another folder of one name only, and nothing at all
        *((odd, None) for odd in ("1.jpg", "wolf/1.jpg", "wolf/7.jpg", "/photos/fox/3.jpg", "fox", "..", "")),
    ],
)
def test_paths_of_other_machines(given: str, image: str | None) -> None:
    assert meant(given) == [image]


def test_two_rows_of_one_image_are_one_or_contradict_each_other(tmp_path) -> None:
    touch(tmp_path, "IMG_1.png", "IMG_2.png")
    table = read_csv_table(
        write(tmp_path / "l.csv", "path,label\nC:\\a\\f\\IMG_1.png,owl\nIMG_1.png,owl\nIMG_2.png,\n")
    )
    assert (len(table), table.label[0]) == (2, "owl")
    torn = write(tmp_path / "l.csv", "path,label\nC:\\a\\f\\IMG_1.png,owl\nIMG_1.png,jay\nIMG_2.png,\n")
    for skip in (False, True):
        with pytest.raises(InputError, match=r"line 2: 'owl'.*line 3: 'jay'"):
            read_csv_table(torn, skip_missing=skip)


@pytest.mark.parametrize(
    "odd", [" ", "\t", "\r", "\n", "\x0b", "\x1c", "\x85", "\xa0", "\u2000", "\u2028", "\u3000"]
)
def test_blanks_of_every_kind_come_back_as_they_were_written(odd: str, tmp_path: Path) -> None:
    rows = [["path", "problem"], [odd, odd], [f"{odd}a", f"b{odd}"]]
    (tmp_path / "blanks.csv").write_text(csv_text(rows), encoding="utf-8", newline="")
    assert [row for _, row in stream_rows(tmp_path / "blanks.csv")] == rows


def test_windows_text_and_other_names_of_the_columns(tmp_path, caplog) -> None:
    touch(tmp_path, "1.png", "2.png")
    for header in ("Dateiname;Klasse", "filename;species", "Image Path;Scientific Name"):
        (tmp_path / "l.csv").write_bytes(f"{header}\r\n1.png;Bläuling\r\n2.png;\r\n".encode("cp1252"))
        with caplog.at_level(logging.INFO, logger="holotype"):
            assert read_csv_table(tmp_path / "l.csv").label.tolist() == ["Bläuling", ""]
        assert "Windows" in caplog.text
    several = write(tmp_path / "l.csv", "path,species,class\n1.png,owl,bird\n")
    with pytest.raises(InputError, match="'species', 'class'"):
        read_csv_table(several)
    (tmp_path / "l.csv").write_bytes(b"path,label\n1.png,\x81\n")
    with pytest.raises(InputError, match="neither UTF-8"):
        read_csv_table(tmp_path / "l.csv")


def test_an_image_that_is_listed_as_it_stands_is_no_other_one_and_quotes_and_roots() -> None:
    """old/loose.jpg is gone, and loose.jpg is not it."""
    assert meant("loose.jpg", "old/loose.jpg") == ["loose.jpg", None]
    assert meant("loose.jpg", "/photos/old/loose.jpg") == ["loose.jpg", None]
    assert meant("a/loose.jpg", "b/loose.jpg") == [None, None]  # nobody knows which of them
    assert meant("a/loose.jpg", "A\\loose.jpg") == ["loose.jpg", "loose.jpg"]  # the same path twice
    two = ("a/X.jpg", "a/x.jpg")
    assert meant("a/X.jpg", "a/x.jpg", "b/a/x.JPG", images=two) == [*two, None]
    texts = {" 'a' ": "a", '"a b"': "a b", "o'": "o'", "'": "'", "''": "", "it's": "it's"}
    assert {text: unquoted(text) for text in texts} == texts
    assert in_quotes("C:\\me\\1.jpg") == "'C:\\me\\1.jpg'"
    assert in_quotes("a\x1b[2J.jpg") == "'a\\x1b[2J.jpg'"  # no letter of a name steers a terminal
    assert relative(["a/b/c.png", "a/d#3"], "a") == ["b/c.png", "d#3"]
    assert relative(["a/b.png"], "") == ["a/b.png"]


@pytest.mark.parametrize(
    "names",
    [
        ("Canna Lily", "canna lily"),
        *(("canna_lily", "Canna-Lily", "cannalily"), ("great tit", "Great Tits")),
        *(("Café noir", "cafe noir"), ("Käfer", "Ka\u0308fer"), ("great cormorant", "great comorant")),
        *(("great cormorant", "great cormoranr"), ("great cormorant", "great cormornat", "great cormorantt")),
    ],
)
def test_one_class_under_several_names(names: tuple[str, ...]) -> None:
    assert similar_names([*names, "red kite", "buzzard"]) == [sorted(names)]


@pytest.mark.parametrize(
    "names",
    [
        ("type 1", "type 2", "type a", "type b"),
        *(("species 0001", "species 0002"), ("fox", "box", "fix", "ox")),
        *(("Boeing 737-200", "Boeing 737-300", "Boeing 737-30"), ("horse", "house"), ("bus", "bu", "b")),
        *(("Least Tern", "Leaf Tern", "Arctic Tern"), ("Barn Swallow", "Bank Swallow"), ("???", "!!!")),
        tuple(f"species of the genus {i:05d}" for i in range(5_000)),  # which takes no time
    ],
)
def test_different_classes_are_different(names: tuple[str, ...]) -> None:
    assert similar_names(names) == []


def test_heaps_dates_and_folders_of_cameras_are_no_classes() -> None:
    """They say when and with what images were taken; numbers that are no dates may well be classes."""
    heaps = ["unsorted", "Misc", "INBOX", "new", "to do", "To_Sort", "others"]
    heaps += ["100CANON", "101MSDCF", "102_PANA"]
    heaps += ["20230512", "2023", "2023-05", "2023_05_12", "DCIM", "Camera Roll"]
    classes = ["fox", "news", "new forest pony", "7", "42", "1234", "2023-17", "20239999"]
    classes += ["3000", "100 CANON 2"]
    assert unsorted_names([*heaps, *classes, "747", "type 2023"]) == sorted(heaps)


@pytest.mark.parametrize("content", [b"PK\3\4\x14\0\6\0", b"path\0,label\n", b"PAR1\0\0"])
def test_a_list_that_is_no_text_is_said(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "list.csv").write_bytes(content)
    with pytest.raises(InputError, match=r"list\.csv is no text"):
        read_list(tmp_path / "list.csv")
