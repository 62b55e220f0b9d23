//! Validity of small shapes drawn by hand.
