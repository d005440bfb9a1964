"""The forms: what is decoded, what is written."""
