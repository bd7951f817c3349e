"""CPU profiles as data, with the source of each figure."""
