"""The only training loop: its steps, its views, its state on disk, and several runs in turn."""
