"""The kinds of columns, one file each, and how they are told apart."""
