"""What Lockstitch is inside other people's frameworks: one module a framework, each an extra."""
