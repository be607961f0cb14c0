"""RMS norms of sums over PEs: all_reduce_rms_norm, reduce_scatter_rms_norm, and the latter gathered."""
