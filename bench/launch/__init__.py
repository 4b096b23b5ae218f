"""A rank's launch: its world, the ranks' meeting, the machine. Only `rendezvous` needs torch."""
