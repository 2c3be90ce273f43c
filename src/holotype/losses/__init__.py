"""Losses as pure functions of tensors; each file names the paper it follows."""
