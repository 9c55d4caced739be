"""One file format each: how its text or bytes become a pyarrow table."""
