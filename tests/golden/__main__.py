"""Write every golden file anew; files that a test no longer asks for go."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

if __name__ == "__main__":
    for file in HERE.glob("*.json"):
        file.unlink()
    sys.exit(
        pytest.main([str(HERE), "--regenerate-goldens", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"])
    )
