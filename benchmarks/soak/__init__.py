"""Faults on purpose, many of each: killed, two at once, no room, damaged, hostile (`make soak`)."""
