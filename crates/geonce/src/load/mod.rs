//! Loads files into layers, each once: reads, keys and writes beside each other, all or nothing for whoever reads the layer.

pub mod fetch;
pub mod target;
