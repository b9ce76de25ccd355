//! ticktape-journal
