"""Clustering of features, the number of categories, and metrics."""
