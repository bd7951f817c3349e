"""``python -m tunnelmark.cli``: the command, for where it is not on the PATH."""

from tunnelmark.cli.main import main

main()
