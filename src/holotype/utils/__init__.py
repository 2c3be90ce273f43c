"""Helpers for files, locks, devices, memory, processes and the console."""
