"""The training loop and its clock: the same statements for every backend."""
