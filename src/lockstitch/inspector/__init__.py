"""The inspector: a web page on this machine that shows sessions and repairs them."""
