"""One backend: jobs carried out with real programs, in a lab."""
