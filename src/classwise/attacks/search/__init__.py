"""Searches with the verdict `any`: one engine, and the attacks that run on it."""
