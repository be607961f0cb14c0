"""Gradients over PEs, in buckets, and activations between the stages of a pipeline."""
