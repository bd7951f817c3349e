"""Results in a browser: read, filtered, compared, watched while they are made."""
