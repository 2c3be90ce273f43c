"""Backbones split into a frozen trunk and a trainable tail, and the heads on top."""
