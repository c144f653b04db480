"""`python -m steelyard` is the command `steelyard`."""

from .entry import main

if __name__ == "__main__":
    main()
