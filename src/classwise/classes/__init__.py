"""What we know and what we decide, per class."""
