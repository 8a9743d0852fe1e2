"""Streak's conductor: studies, generation, grading, budgets, and the `streak` command."""
