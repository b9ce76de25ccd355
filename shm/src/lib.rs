//! ticktape-shm
