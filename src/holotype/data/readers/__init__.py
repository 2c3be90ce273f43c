"""Readers: one file for each kind of source that images may come from (data/load.py says which reads what)."""
