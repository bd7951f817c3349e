"""Where a program runs: one interface, one file per kind of host."""
