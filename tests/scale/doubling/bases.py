def dimensions():
    return iter(())
