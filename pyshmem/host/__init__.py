"""The host API, one module per chapter of the specification."""
