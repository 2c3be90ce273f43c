"""The only training loop, its state on disk, and the gathering of several processes."""
