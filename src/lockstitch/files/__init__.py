"""Files that other programs may be writing, read within limits and replaced without loss."""
