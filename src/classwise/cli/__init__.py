"""The command line: thin, and quick to answer because heavy imports wait inside the commands."""

from classwise.cli import auditing, lists, reporting, training  # noqa: F401  (commands join the app)
from classwise.cli.app import app, main

__all__ = ["app", "main"]
