//! What of a configuration depends on the box: where it is to write. Looked at, and left as it is.

use std::io::ErrorKind;
use std::path::Path;

use super::{ApplianceConfig, ConfigError};

impl ApplianceConfig {
    /// Checks that what is to be written to can be there: the journal's directory, a ring's, and the capture's file. Who may write
    /// there is not asked, since another user may ask than the one who will.
    ///
    /// # Errors
    /// [`ConfigError`], naming the key, the path and what would be right.
    pub fn check_places(&self) -> Result<(), ConfigError> {
        let bad = |key: &str, message: String| Err(ConfigError { place: key.to_string(), message });
        let absolute = std::path::absolute(&self.dir).unwrap_or_else(|_| self.dir.clone());
        // What is missing of it is made, below what is there.
        if let Some(there) =
            absolute.ancestors().find(|above| above.symlink_metadata().is_ok()).filter(|above| is_no_directory(above))
        {
            return bad("dir", format!("{} is no directory", there.display()));
        }
        if self.ring.name.is_some() && is_no_directory(&self.ring.dir) {
            return bad("ring.dir", format!("there is no directory {}", self.ring.dir.display()));
        }
        if let Some(capture) = &self.capture {
            let file = &capture.file;
            if file.file_name().is_none() || file.is_dir() {
                return bad("capture.file", format!("{:?} is no name of a file", file.display().to_string()));
            }
            let above = file.parent().filter(|above| !above.as_os_str().is_empty());
            if let Some(above) = above.filter(|above| is_no_directory(above)) {
                let (file, above) = (file.display(), above.display());
                return bad("capture.file", format!("{file}: there is no directory {above}, and none is made"));
            }
        }
        Ok(())
    }
}

/// Whether there is none. Of what this user may not look at, nothing is known.
fn is_no_directory(path: &Path) -> bool {
    match path.metadata() {
        Ok(metadata) => !metadata.is_dir(),
        Err(error) => matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::config::CaptureConfig;

    #[test]
    fn a_place_that_can_not_be_is_named_and_nothing_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "").unwrap();
        let config = |dir: &str| ApplianceConfig::new(at(dir), "127.0.0.1:0".parse().unwrap());
        let said = |config: ApplianceConfig| config.check_places().map_err(|error| error.to_string());
        assert_eq!(said(config("new/below")), Ok(()));
        for wrong in ["file", "file/below/it"] {
            let error = said(config(wrong)).unwrap_err();
            assert!(error.starts_with("dir: ") && error.ends_with("file is no directory"), "{error}");
        }
        let ring = |dir: &str| {
            let mut config = config("new");
            (config.ring.name, config.ring.dir) = (Some("book".to_string()), at(dir));
            said(config)
        };
        assert_eq!(ring(""), Ok(()));
        assert!(ring("none").unwrap_err().starts_with("ring.dir: ") && ring("file").is_err());
        let capture =
            |file: &str| said(ApplianceConfig { capture: Some(CaptureConfig::new(at(file))), ..config("new") });
        assert_eq!((capture("a.pcapng"), capture("file")), (Ok(()), Ok(())));
        assert!(capture("none/a.pcapng").unwrap_err().starts_with("capture.file: ") && capture("").is_err());
        let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["file"]);
    }
}
