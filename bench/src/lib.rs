//! ticktape-bench
