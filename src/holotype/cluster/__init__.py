"""Clustering of features, how many categories there are, and the scores."""
