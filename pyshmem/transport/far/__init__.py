"""Routes to far PEs, those on other nodes: cpu and gpu by memory; carriers, interfaces and the proxy of kernels."""
