"""Loss -> optimiser -> counts -> average -> checkpoint."""
