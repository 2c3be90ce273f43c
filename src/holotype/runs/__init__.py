"""From settings to a run folder: what is run, what it shares with others, what it leaves behind."""
