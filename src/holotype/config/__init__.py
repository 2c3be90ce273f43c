"""Settings: their types, their dataclasses, and how text becomes a value."""
