//! Repair of small shapes drawn by hand, and laws that hold for every shape.
