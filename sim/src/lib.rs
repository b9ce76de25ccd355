//! ticktape-sim
