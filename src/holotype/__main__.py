"""`python -m holotype` is the command `holotype`."""

import sys

from holotype.cli import main

if __name__ == "__main__":
    sys.exit(main())
