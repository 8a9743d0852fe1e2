"""Benchmarks: one file each loads problems, writes the prompt and grades the response."""
