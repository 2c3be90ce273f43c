"""Clustering of features: k-means, plain and semi-supervised."""
