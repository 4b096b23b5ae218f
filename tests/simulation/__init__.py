"""Simulated studies of known truth, through the statistics of this project: what do they keep?"""
