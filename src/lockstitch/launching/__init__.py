"""Starting an agent: which session it is about to resume, and how it is led to the proxy."""
