"""The command line: thin, and quick to answer because heavy imports wait inside the commands."""

from classwise.cli import (  # noqa: F401  (their commands join the app)
    auditing,
    caching,
    comparing,
    lists,
    studying,
    training,
    tuning,
    universality,
)
from classwise.cli.app import app, main

__all__ = ["app", "main"]
