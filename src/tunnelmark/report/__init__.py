"""Estimates to a terminal table, HTML, Markdown and CSV."""
