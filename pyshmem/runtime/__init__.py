"""What the chapters stand on: the job, its errors and environment, the symmetric heaps and the memory behind them."""
