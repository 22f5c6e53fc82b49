"""What other people use in their tests."""
