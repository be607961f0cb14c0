"""Matrix products fused with their communication: operators, the schedules that they have, and the kernels of our own."""
