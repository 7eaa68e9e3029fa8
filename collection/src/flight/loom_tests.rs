//! Models of how the callers of a flight meet, on the shipped code.
