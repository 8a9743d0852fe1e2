"""Training a drafter against its frozen verifier: windows, objectives, rollouts, a resumable trainer. Knows no task."""
