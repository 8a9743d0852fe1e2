"""The bundled models, a small verifier and its diffusion drafters, as model directories; and their pretraining."""
