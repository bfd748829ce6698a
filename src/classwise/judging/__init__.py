"""Rows -> groups -> metrics -> comparison and gate."""
