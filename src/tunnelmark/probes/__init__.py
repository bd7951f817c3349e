"""What is observed beside a workload: CPU, capture, interface counters."""
