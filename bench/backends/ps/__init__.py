"""The parameter server: servers beside the ranks hold the parameters, over mpi4py."""
