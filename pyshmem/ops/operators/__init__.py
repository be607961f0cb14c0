"""The operators: one file each, with the function, what it computes and the torch calls that compute the same."""
