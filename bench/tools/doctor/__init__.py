"""`python -m bench doctor`: is this machine, or this launch, fit to be measured on?"""
