"""Batch to perturbed batch, with a radius per sample everywhere."""
