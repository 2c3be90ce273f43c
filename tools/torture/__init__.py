"""The campaign that tries to break it: `python -m tools.torture --help`."""
