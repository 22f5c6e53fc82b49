"""P3: one writer a session, with real processes that die, stop, and disagree about the time."""
