"""Tests with the real SDKs."""
