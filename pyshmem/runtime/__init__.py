"""The C engine: the extension module _native, of one header for each purpose."""
