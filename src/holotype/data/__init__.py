"""From files to views: table, sources, benchmarks, protocol, store, views, sampling."""
