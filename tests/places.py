"""Where the tests and the repository are, wherever a test file stands."""

from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent
