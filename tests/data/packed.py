"""Coloured squares packed as other people pack images: into Parquet files and into tars."""

import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

Row = tuple[str, bytes, str]
"""Name, bytes and label of an image."""


def square(colour: tuple[int, int, int] = (200, 40, 40), side: int = 8, kind: str = "PNG") -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (side, side), colour).save(stream, format=kind)
    return stream.getvalue()


def images_of(folder: Path) -> list[Row]:
    """The images of a folder of squares (conftest.py), in the order of their paths."""
    found = []
    for file in sorted(folder.glob("*/*.png")):
        label = "" if file.parent.name == "unlabelled" else file.parent.name
        found.append((file.stem, file.read_bytes(), label))
    return found


def write_parquet(file: Path, rows: Sequence[Row], *, group: int = 10, plain: bool = False) -> Path:
    """As Hugging Face does it: a struct of bytes and path, and classes as numbers whose names lie in the head of the
    file. plain: a column of bytes, and labels as text."""
    names = sorted({label for *_, label in rows} - {""})
    if plain:
        contents, labels = ([row[at] for row in rows] for at in (1, 2))
        table = pa.table({"image": contents, "label": labels})
    else:
        struct = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        images = pa.array([{"bytes": content, "path": f"{name}.png"} for name, content, _ in rows], struct)
        number = pa.array([names.index(label) if label else -1 for *_, label in rows], pa.int64())
        features = {"image": {"_type": "Image"}, "label": {"names": names, "_type": "ClassLabel"}}
        told = json.dumps({"info": {"features": features}})
        table = pa.table({"image": images, "label": number}).replace_schema_metadata({"huggingface": told})
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, file, row_group_size=group)
    return file


def write_tar(file: Path, members: Sequence[tuple[str, bytes]]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(file, "w") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return file


def write_shards(folder: Path, rows: Sequence[Row], each: int) -> list[Path]:
    """shard-000.tar and so on, as WebDataset packs them: 0001.png beside 0001.cls."""
    shards = []
    for number, first in enumerate(range(0, len(rows), each)):
        members = []
        for name, content, label in rows[first : first + each]:
            members.append((f"{name}.png", content))
            if label:
                members.append((f"{name}.cls", label.encode()))
        shards.append(write_tar(folder / f"shard-{number:03d}.tar", members))
    return shards
