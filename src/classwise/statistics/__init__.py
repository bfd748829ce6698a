"""Numbers in, numbers out: intervals, tests, evidence."""
