"""The official file layouts of the benchmarks: each turns a folder into a Listing."""
