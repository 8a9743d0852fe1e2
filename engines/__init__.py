"""Engines: what turns prompts into tokens under a wall-clock budget, and what trains their drafters."""
