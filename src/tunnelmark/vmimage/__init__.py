"""The system image of a machine: recipe, build without root, cache."""
