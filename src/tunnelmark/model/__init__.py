"""Frozen types with units, shared by every other package; imports nothing of ours."""
