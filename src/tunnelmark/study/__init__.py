"""Text to Study to ordered trials; the built-in studies are TOML files beside it."""
