"""Answers about images with small changes, from a part of the network."""
