//! ticktape-macros
