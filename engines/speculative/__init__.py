"""The method as pure functions: laws, drafts, verification rules. No model, clock, file or global random state.

Notation (docs/NOTATION.md): B batch, V vocabulary, G window, K drafts, N nodes of a draft tree.
A draft tree hangs below the `bonus` token, which is committed text already: row 0 of a verify forward is that token,
row 1 + n is node n. The target's scores in a row are the law of the token that follows that row.
"""
