"""Check, up, warm, measure, down; order, stop rule, validity, resume, progress."""

from tunnelmark.run.execute import execute

__all__ = ["execute"]
