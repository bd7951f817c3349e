"""One file per link model: its parameters, its presets, its specification for the engine."""
