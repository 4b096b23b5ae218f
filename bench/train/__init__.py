"""The training loop, its clock and its checks, the same for every backend."""
