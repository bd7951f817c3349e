"""One file per tunnel, found by the registry in ``tunnelmark.tunnels.base``."""
