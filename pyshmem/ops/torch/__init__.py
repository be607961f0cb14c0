"""The operators for torch.compile and autograd: ``from pyshmem.ops.torch import library`` registers torch.ops.pyshmem.*."""
