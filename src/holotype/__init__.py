"""Holotype: find the categories you know and the ones you don't."""

__version__ = "0.1.0"
