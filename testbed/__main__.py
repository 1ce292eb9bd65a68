"""``python -m testbed``: the command ``testbed``, where it is not on the path."""

from testbed.cli.main import main

if __name__ == "__main__":
    main()
