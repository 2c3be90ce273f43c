"""The report's own JavaScript without its page, in Node."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from holotype.report import build

HERE = Path(__file__).parent
PURE = ("corrections.js", "carry.js", "search.js", "lasso.js")
"""The scripts of the page of which something can be asked without one."""


def run_javascript(task: str, given: list[Any]) -> list[Any]:
    """Let a function of `tasks.js` do each of the given; skips the test where nothing runs JavaScript."""
    scripts = [*(build.HERE / name for name in PURE), HERE / "tasks.js"]
    source = "\n".join(['"use strict";', *(script.read_text(encoding="utf-8") for script in scripts)])
    node = shutil.which("node")
    if node is None:  # the one that drives browsers
        node = str(Path(pytest.importorskip("playwright").__file__).parent / "driver" / "node")
    ends = "\nprocess.stdout.write(JSON.stringify(TASKS[input.task](input.given)));"
    whole = f'const input = JSON.parse(require("fs").readFileSync(0, "utf8"));\n{ends}'
    how = {"capture_output": True, "text": True, "encoding": "utf-8", "timeout": 120, "check": False}
    given_text = json.dumps({"task": task, "given": given})
    done = subprocess.run([node, "-e", source + "\n" + whole], input=given_text, **how)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))
