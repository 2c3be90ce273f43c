"""The studio: the report of a run, served on this machine, that saves at once and starts rounds."""
