//! The recorded boxes: what would be changed there, and why.
