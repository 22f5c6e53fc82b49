"""Parts, messages, zones and the pairing of calls and results: pure values."""
