"""The reference pages under docs/, made from the code that they describe."""
