"""Hosts joined by links; the only part that creates namespaces and interfaces."""
