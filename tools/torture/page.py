"""The campaign's table in docs/trust.md, from the records that runs have left.

python -m tools.torture --minutes 60 --record record.json && python -m tools.torture.page record.json

Several records are put together: runs with other seeds try other cases.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]
PAGE, RECORD = TOP / "docs" / "trust.md", TOP / "docs" / "torture.json"
BLOCK = re.compile(r"(?<=<!-- campaign: begin -->\n).*?(?=<!-- campaign: end -->)", re.DOTALL)


def block(records: list[dict[str, Any]]) -> str:
    """What the page says first."""
    campaigns = [one for record in records for one in record["campaigns"]]
    tried, n_lost = sum(one["tried"] for one in campaigns), sum(record["lost"] for record in records)
    lost = {0: "nothing was lost", 1: "one was lost"}.get(n_lost, f"{n_lost:,} were lost")
    first = records[0]
    versions = first["versions"]
    minutes = listed([f"{record['seconds'] / 60:.0f}" for record in records])
    seeds = listed([str(record["seed"]) for record in records])
    commits = list(dict.fromkeys(record["commit"] for record in records))
    lines = [
        f"**{tried:,} attempts to break it, and {lost}**: {minutes} minutes on {first['machine']}, {first['system']}, "
        f"Python {first['python']}, PyTorch {versions['torch']}, Pillow {versions['pillow']}, PyArrow "
        f"{versions['pyarrow']}; commit{'s' * (len(commits) > 1)} {listed(commits)}, "
        f"seed{'s' * (len(records) > 1)} {seeds}.",
        "",
        "| tried | lost | what |",
        "|---:|---:|---|",
    ]
    kinds: dict[str, list[dict[str, Any]]] = {}
    for one in campaigns:
        kinds.setdefault(one["kind"], []).append(one)
    for kind, several in kinds.items():
        n, gone = sum(one["tried"] for one in several), sum(one["lost"] for one in several)
        names = ", ".join(dict.fromkeys(one["campaign"] for one in several if one["tried"]))
        lines.append(f"| {n:,} | {gone:,} | {kind} ({names}) |")
    return "\n".join([*lines, ""])


def listed(words: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def main(files: Sequence[str]) -> None:
    """files: the records; they are kept beside the page."""
    records = [json.loads(Path(file).read_text(encoding="utf-8")) for file in files]
    for file, record in zip(files, records, strict=True):
        if not record.get("ended", True):
            raise SystemExit(f"{file} is of a campaign that did not come to its end")
    for one in (one for record in records for one in record["campaigns"]):
        one["failures"] = [failure["again"] for failure in one["failures"]]  # their texts name this machine
    RECORD.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
    text, made = PAGE.read_text(encoding="utf-8"), block(records)
    PAGE.write_text(BLOCK.sub(lambda _: made, text), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
