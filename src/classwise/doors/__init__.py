"""Ways in from Python: `audit`, and attacks as objects people know."""
