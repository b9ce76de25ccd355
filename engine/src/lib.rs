//! ticktape
