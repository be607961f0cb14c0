"""Operators of models that are no products: each is one file with its reference, beside one with its kernels."""
