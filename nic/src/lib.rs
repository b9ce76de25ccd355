//! ticktape-nic
