"""Files of tests that run in a process of their own: those that say OWN_PROCESS = True.

Ray, and the S3 client of pyarrow, leave threads behind that outlive them. One of those can end a process at any time
later, and with it tests that have nothing to do with it. Here they end with their file.
"""

import contextlib
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

PLACE = "HOLOTYPE_TEST_REPORTS"
"""Set in the process of such a file: where it writes how its tests went, a line of JSON for each step of each."""
SECONDS = 500  # that the tests of a file may take together; a single test has 600 (pyproject.toml)


class Writing:
    """In the process of the file: hands on what pytest reports."""

    def __init__(self, config: pytest.Config, place: Path) -> None:
        self._config, self._place = config, place

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        with self._place.open("a", encoding="utf-8") as file:
            file.write(json.dumps(data) + "\n")


class Apart:
    """In the process that has other files too: tests of such a file are reported as they went in its own."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        if not getattr(getattr(item, "module", None), "OWN_PROCESS", False):
            return None
        reports, said = run_apart(item.session, item.path)
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in reports.get(item.nodeid) or [_never_ended(item, said)]:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        # folders that a test before left set up for this one: pytest takes them down after a test, and none ran here
        item.session._setupstate.teardown_exact(nextitem)
        return True


def _never_ended(item: pytest.Item, said: str) -> pytest.TestReport:
    words = f"The process of this file ended before the test did. It said:\n{said}"
    return pytest.TestReport(item.nodeid, item.location, {}, "failed", words, "call")


def environment() -> dict[str, str]:
    """Without what is meant for the processes of this run, such as a file that each would write."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}


@cache
def run_apart(session: pytest.Session, file: Path) -> tuple[dict[str, list[pytest.TestReport]], str]:
    """How each of the chosen tests of a file went, by its name, and the last words of its process."""
    chosen = [item.nodeid for item in session.items if item.path == file]
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *chosen]
    with TemporaryDirectory() as folder:
        place, out = Path(folder) / "reports", Path(folder) / "out"
        place.touch()
        with out.open("wb") as stream, contextlib.suppress(subprocess.TimeoutExpired):
            env = environment() | {PLACE: str(place)}
            how = {"cwd": session.config.rootpath, "env": env, "timeout": SECONDS}
            subprocess.run(words, stdout=stream, stderr=subprocess.STDOUT, **how)
        lines = place.read_text(encoding="utf-8").splitlines()
        said = out.read_text(encoding="utf-8", errors="replace")
    found: dict[str, list[pytest.TestReport]] = {}
    for line in lines:
        data = json.loads(line)
        if isinstance(data["longrepr"], list):  # why it was skipped: a tuple before it was JSON
            data["longrepr"] = tuple(data["longrepr"])
        report = session.config.hook.pytest_report_from_serializable(config=session.config, data=data)
        found.setdefault(report.nodeid, []).append(report)
    # a test that took its process with it has begun and has no end
    ended = {name: one for name, one in found.items() if one[-1].when == "teardown"}
    return ended, said[-4000:]


def register(config: pytest.Config) -> None:
    place = os.environ.get(PLACE)
    config.pluginmanager.register(Writing(config, Path(place)) if place else Apart())
