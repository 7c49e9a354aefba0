"""The published tables, pages and pictures, made from the results."""
