"""The base of all other modules: the job, its errors and environment, the symmetric heaps and the memory behind them."""
