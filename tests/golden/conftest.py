"""Compare with a golden file, or write it anew: `python -m tests.golden`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
Golden = Callable[[str, str, Any], Any]


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Returns what a golden file has under a key; with --regenerate-goldens, after the value was put there."""

    def stored(name: str, key: str, value: Any) -> Any:
        path = HERE / f"{name}.json"
        content = json.loads(path.read_text()) if path.exists() else {}
        if request.config.getoption("--regenerate-goldens"):
            content[key] = value
            path.write_text(dumped(content))
        assert key in content, f"{path.name} has no {key}; regenerate the goldens"
        return content[key]

    return stored


def dumped(content: dict[str, Any]) -> str:
    """JSON with a line for every entry of an entry."""
    lines = []
    for key, value in sorted(content.items()):
        if isinstance(value, dict):
            inner = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(value.items()))
            lines.append(f" {json.dumps(key)}: {{\n{inner}\n }}")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"
