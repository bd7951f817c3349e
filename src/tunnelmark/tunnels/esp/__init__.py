"""ESP whose keys IKE agrees on, whichever daemon runs it: ends, suites, associations."""
