"""Dimensions in which sessions grow: what twice as much of something costs.

The builders of the other tests give one broken session each; here each is made n times as long.
``benchmarks/doubling.py`` takes the time, ``test_doubling.py`` counts calls.
"""
