"""The inspector: a page on this machine that shows sessions and repairs them."""
