"""``python -m lockstitch``: the same as the command ``lockstitch``."""

from lockstitch.cli import main

if __name__ == "__main__":
    main()
