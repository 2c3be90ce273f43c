"""The tables say what the figures say, and the document says what the files say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tables import BEGIN, END, insert, section, short, size, tables

from holotype.errors import InputError

TOP = Path(__file__).resolve().parent.parent.parent


def row(pipeline: str, method: str, arithmetic: str, ms: float, **more) -> dict:
    return {
        "pipeline": pipeline,
        "method": method,
        "arithmetic": arithmetic,
        "images": 1000,
        "batch": 100,
        "k": 10,
        "ms": ms,
        "images_per_second": 1e5 / ms,
        "start_seconds": 2.0,
        "extrapolated_seconds": 2 + 2 * ms,
        "host_bytes": 3_000_000_000,
        "device_bytes": 5_000_000_000,
        "captured": False,
        **more,
    }


@pytest.fixture
def record() -> dict:
    return {
        "hardware": "1 x Card",
        "cores": 16,
        "python": "3.12",
        "torch": "2.11",
        "torchvision": "0.26",
        "timm": "1.0",
        "commit": "abc",
        "command": "python benchmarks/speed.py",
        "photographs": "files",
        "arch": "vit",
        "image_size": 224,
        "batch": 100,
        "k": 10,
        "commands": {},
        "n_images": 1000,
        "costs": {
            "store": {"images": 1000, "bytes": 2_000_000, "seconds": 4.0, "line": ""},
            "cache": {"mode": "cached 2+1", "images": 1000, "bytes": 7e9, "seconds": 10.0, "level": "device"},
        },
        "parts": {
            "reference": [
                row("reference style", "simgcd", "fp32", 300.0, workers=8),
                row("reference style", "simgcd", "fp16", 150.0, workers=8),
            ],
            "exact": [row("exact", "simgcd", "bf16", 20.0)],
            "cached": [
                row("cached 2+1", "simgcd", "bf16", 2.0, captured=True),
                row("cached 2+1", "rpc", "bf16", 3.0, captured=True),
            ],
        },
    }


def cells(text: str, start: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {start} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_ratios_and_whole_runs(record: dict) -> None:
    text = section(record)
    assert "times faster than fp32 | times faster than fp16" in text
    exact = cells(text, "exact, bf16 | SimGCD")
    assert exact[2:6] == ["20.0", "5,000", "15.0", "7.5"]
    assert exact[6] == "46"  # 2 s of start, 40 s of steps, 4 s of decoding
    cached = cells(text, "cached 2+1, bf16, captured | SimGCD")
    assert cached[4:7] == ["150.0", "75.0", "20"]  # 2 + 4 + decoding 4 + caching 10
    assert cells(text, "reference style, fp32, 8 workers | SimGCD")[4:7] == ["1.0", "0.5", "602"]
    # a method without a measured reference has no ratio
    assert cells(text, "cached 2+1, bf16, captured | RPC")[4:6] == ["", ""]
    assert "**extrapolated**" in text


def test_conditions_stand_beside_the_figures(record: dict) -> None:
    text = section(record)
    for word in ("1 x Card", "torch 2.11", "commit: abc", "`python benchmarks/speed.py`", "random weights"):
        assert word in text
    record["commands"] = {"exact": "python one", "cached": "python two", "reference": "python one"}
    assert section(record).count("- command:") == 2
    assert "rough" not in text
    assert "rough" in section({**record, "quick": True})


def test_growth_and_ceilings(record: dict) -> None:
    record["parts"]["batch"] = [
        row("cached 2+1", "simgcd", "bf16", ms, batch=batch) for batch, ms in ((256, 4.0), (64, 1.5))
    ]
    record["parts"]["k"] = [row("cached 2+1", "rpc", "bf16", 1.25, k=1000)]
    cache = {"mode": "cached 2+1", "bytes": 5e9, "seconds": 3.0, "level": "host"}
    record["parts"]["images"] = [
        row("cached 2+1", "simgcd", "bf16", 2.0, store_bytes=10**9, decode_seconds=1.0, cache=cache)
    ]
    record["parts"]["ceilings"] = {
        "views": 256,
        "gmac_per_view": 16.11,
        "arithmetic": "bfloat16",
        "trunk_ms": 20.0,
        "share": 0.523,
        "trunk_tflops": 412.4,
        "matmul_tflops": 788.0,
        "matmul_side": 8192,
    }
    record["parts"]["together"] = [
        row("cached 2+1", "rpc", "bf16", ms, runs=runs) for runs, ms in ((1, 2.0), (8, 4.5))
    ]
    text = section(record)
    assert "| cached 2+1, bf16 | RPC | 8 | 4.50 | 2.25 | 5.00 GB |" in text
    assert "| ms a step | method | Batch 64 | Batch 256 |" in text
    assert "| cached 2+1, bf16 | SimGCD | 1.50 | 4.00 |" in text
    assert "K 1,000" in text
    assert "**52 %** of the 788 TFLOP/s" in text
    assert "| 1,000 | cached 2+1, bf16 | 1.0 | 1.00 GB | 3.0 | 5.00 GB | 2.00 |" in text


def test_methods_stages_and_clustering(record: dict) -> None:
    record["parts"] = {
        "methods": [row("cached 2+1", "uno", "bf16", 3.5, captured=True)],
        "image_stages": [row("images", "sptnet", "bf16", 25.0, stage="second stage, prompt learns")],
        "clustering": [
            {"what": "communities", "where": "1 CPU core", "images": 6000, "dim": 384, "k": 200}
            | {"detail": "84,000 links", "graph_seconds": 0.5, "search_seconds": 1.0, "seconds": 1.5},
            {"what": "semi-supervised k-means", "where": "Card", "images": 127_000, "dim": 768, "k": 100}
            | {"detail": "100 starts", "seconds": 42.0, "host_bytes": 3e9, "device_bytes": 5e9},
        ],
    }
    text = section(record)
    assert text.startswith("### 1 x Card, vit: every method, stages on images, clustering\n")
    assert "| cached 2+1, bf16, captured | UNO+ | 3.50 | 28,571 | 2.0 | 5.00 GB | 3.00 GB |" in text
    assert "| images, bf16 | SPTNet, second stage, prompt learns | 25.0 | 4,000 | 2.0 | 5.00 GB |" in text
    assert "| communities, 84,000 links | 1 CPU core | 6,000 | 384 | 200 | 0.50 | 1.50 |  |  |" in text
    assert (
        "| semi-supervised k-means, 100 starts | Card | 127,000 | 768 | 100 |  | 42.0 | 5.00 GB | 3.00 GB |"
        in text
    )


def test_clustering_alone_sees_no_image(record: dict) -> None:
    record["parts"], record["costs"] = {"clustering": []}, {}
    text = section(record)
    assert text.startswith("### 1 x Card: clustering\n")
    assert "network:" not in text
    assert "torch 2.11" in text


def test_a_cpu_has_no_gpu_memory_and_missing_parts_are_left_out(record: dict) -> None:
    for rows in record["parts"].values():
        for one in rows:
            del one["device_bytes"]
    assert "GPU memory |" not in section(record).split("paid once")[0]
    record["parts"], record["costs"] = {}, {}
    assert "| ---" not in section(record)


def test_tables_replace_what_stands_between_the_marks(record: dict, tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text(f"Before.\n\n{BEGIN}\nold\n{END}\n\nAfter.\n")
    for _ in range(2):
        insert(tables([record]), document)
    text = document.read_text()
    assert text.startswith("Before.")
    assert text.endswith("After.\n")
    assert "old" not in text
    assert text.count("### 1 x Card") == 1
    (tmp_path / "bare.md").write_text("nothing")
    with pytest.raises(InputError, match="place for the tables"):
        insert("x", tmp_path / "bare.md")


def test_numbers_are_short() -> None:
    assert [short(x) for x in (1234.5, 123.45, 12.345, 1.2345)] == ["1,234", "123", "12.3", "1.23"]
    assert [size(x) for x in (1_600_000_000, 31_000_000)] == ["1.60 GB", "31.0 MB"]


def test_the_document_holds_the_tables_of_the_recorded_figures() -> None:
    """docs/performance.md is never edited by hand between its marks."""
    text = (TOP / "docs" / "performance.md").read_text(encoding="utf-8")
    between = text.partition(BEGIN)[2].partition(END)[0].strip()
    files = sorted((TOP / "experiments" / "results" / "speed").glob("*.json"))
    records = [json.loads(path.read_text(encoding="utf-8")) for path in files]

    def parts(text: str) -> list[str]:
        """One per machine, in any order."""
        return sorted(part.strip() for part in f"\n{text}".split("\n### "))

    assert parts(between) == parts(tables(records))
