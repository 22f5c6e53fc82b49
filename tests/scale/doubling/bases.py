


def dimensions():
    return iter(())
