"""Results of a run: categories and images, ensembles, calibration, edits."""
