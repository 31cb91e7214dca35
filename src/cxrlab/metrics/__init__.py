"""References and candidates in, values with direction, range and signature out."""
