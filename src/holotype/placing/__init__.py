"""A finished discovery as a tool: open it, place new images with it, export it."""
