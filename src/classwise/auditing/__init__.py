"""Plan -> rows: the one road of every audit, and who walks it."""
