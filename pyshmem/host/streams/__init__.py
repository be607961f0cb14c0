"""Calls that are enqueued on torch's current stream and return at once."""
