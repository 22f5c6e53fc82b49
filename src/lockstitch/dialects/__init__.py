"""Wire formats: one module a dialect, each a lossless view over the raw data."""
