"""Start an agent: find the session it is about to resume, and lead it to the proxy."""
