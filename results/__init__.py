"""What a run leaves behind: record types, the ledger, provenance, costs, and the paper's published numbers."""
