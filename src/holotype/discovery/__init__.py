"""From images to named categories: count, train, place, describe, correct, and round after round."""
