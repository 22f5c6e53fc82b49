"""LangGraph's checkpoints in a PostgreSQL: read gently, repaired by one more row, taken back."""

# The kind of a store that is reached by an address of PostgreSQL.
KIND = "postgresql"
