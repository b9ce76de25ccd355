//! ticktape-tools
