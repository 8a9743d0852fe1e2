"""Figures, tables and intervals from what results/ holds; reads ledgers, runs nothing."""
