//! ticktape-tuning
