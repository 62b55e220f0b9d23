//! The suite that every transactional sink passes.
