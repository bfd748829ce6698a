"""Models small enough to be understood whole, which two of the papers argue with."""
