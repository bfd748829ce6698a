"""Search the options of a recipe: average against worst-class robust accuracy on validation."""
