"""Routes to far PEs, those on other nodes: cpu and gpu by memory; the fabric, interfaces and the proxy of kernels."""
