"""A session in virtual time: the same job without root, tunnel program or clock."""
