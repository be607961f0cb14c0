"""The symmetric heap in GPU memory, for both vendors: one seam to the driver, two ways to map the peers' memory."""
