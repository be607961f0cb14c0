"""The host API: one module for each chapter of the specification."""
