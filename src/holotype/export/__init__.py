"""Use a finished discovery: assign new images, export results and models."""
