"""The package's version and the OpenSHMEM version it follows."""

__version__ = "0.1.0"
OPENSHMEM = (1, 6)
