"""The campaign's table in docs/trust.md, from the record that a run has left.

python -m tests.torture --minutes 60 --record docs/torture.json && python -m tests.torture.page
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]
PAGE, RECORD = TOP / "docs" / "trust.md", TOP / "docs" / "torture.json"
BLOCK = re.compile(r"(?<=<!-- campaign: begin -->\n).*?(?=<!-- campaign: end -->)", re.DOTALL)


def block(record: dict[str, Any]) -> str:
    """What the page says first."""
    tried = sum(one["tried"] for one in record["campaigns"])
    lost = "nothing was lost" if not record["lost"] else f"{record['lost']:,} were lost"
    versions = record["versions"]
    lines = [
        f"**{tried:,} attempts to break it, and {lost}**: {record['seconds'] / 60:.0f} minutes on "
        f"{record['machine']}, {record['system']}, Python {record['python']}, PyTorch {versions['torch']}, Pillow "
        f"{versions['pillow']}, PyArrow {versions['pyarrow']}; commit {record['commit']}, seed {record['seed']}.",
        "",
        "| tried | survived | lost | what |",
        "|---:|---:|---:|---|",
    ]
    kinds: dict[str, list[dict[str, Any]]] = {}
    for one in record["campaigns"]:
        kinds.setdefault(one["kind"], []).append(one)
    for kind, several in kinds.items():
        n, gone = sum(one["tried"] for one in several), sum(one["lost"] for one in several)
        names = ", ".join(one["campaign"] for one in several if one["tried"])
        lines.append(f"| {n:,} | {n - gone:,} | {gone:,} | {kind} ({names}) |")
    return "\n".join([*lines, ""])


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    made = block(json.loads(RECORD.read_text(encoding="utf-8")))
    PAGE.write_text(BLOCK.sub(lambda _: made, text), encoding="utf-8")


if __name__ == "__main__":
    main()
