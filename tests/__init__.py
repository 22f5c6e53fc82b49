"""Tests of Lockstitch, one folder a promise."""
