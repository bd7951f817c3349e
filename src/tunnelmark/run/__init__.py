"""The trial loop: order, stop rule, validity, resume, events; it knows sessions, not labs."""
