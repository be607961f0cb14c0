"""Reports where a PE is and why it ends: time-outs, tracebacks, exits, and ranges for profilers."""
