"""Readers: one file for each kind of source that images may come from (registry.py says which reads what)."""
