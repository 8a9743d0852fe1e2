"""Drafter architectures that SGLang does not have."""
