"""Who this process is in its world, where the ranks meet, and what the machine gives them; needs no
torch.
"""
