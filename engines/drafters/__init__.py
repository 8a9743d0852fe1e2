"""Where drafts come from: diffusion models, small causal models, the text itself, and combinations of drafters."""
