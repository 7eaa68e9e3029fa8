//! Models of how the threads of a window meet, on the shipped code.
