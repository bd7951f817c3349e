"""The Python side of ``tunnelmark-engine``: configurations, events and record files."""
