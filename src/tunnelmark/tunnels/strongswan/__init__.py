"""strongSwan's charon: its configuration, its associations, and ESP keyed by it."""
