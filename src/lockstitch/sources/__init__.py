"""Everything that holds sessions, behind one interface: open, check, repair, write, undo."""
