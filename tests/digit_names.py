"""Digits by name."""

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
