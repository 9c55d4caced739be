"""`python -m addml`."""

from addml.cli import main

if __name__ == "__main__":
    main()
