"""Who this process is, where ranks meet, what the machine gives; only `rendezvous` needs torch."""
