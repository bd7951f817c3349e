"""Check, up, warm, measure, down; order, stop rule, validity, resume, progress."""
