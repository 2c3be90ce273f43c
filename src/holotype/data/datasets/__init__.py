"""Benchmark data sets: their official file layouts, each as a Listing."""
