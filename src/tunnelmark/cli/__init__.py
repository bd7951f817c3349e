"""Arguments, exit codes and progress display."""
