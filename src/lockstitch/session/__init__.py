"""What a user of the library holds: a store, its sessions, and the tools they run."""
