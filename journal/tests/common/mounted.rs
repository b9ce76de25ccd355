//! File systems made for a test, as root; taken down when dropped, however the test ends.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs a command; its output, or why not.
pub fn run(command: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(command).args(arguments).output().map_err(|error| format!("{command}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(format!("{command}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are text")
}

/// A mounted file system.
pub struct Mounted {
    device: Option<String>,
    mounted: bool,
    // Declared last: the image goes after the mount.
    dir: tempfile::TempDir,
}

impl Mounted {
    fn nothing() -> Mounted {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("mount")).unwrap();
        Mounted { device: None, mounted: false, dir }
    }

    fn mount(&mut self, arguments: &[&str]) -> Result<(), String> {
        let path = self.path();
        run("mount", &[arguments, &[text(&path)]].concat())?;
        self.mounted = true;
        Ok(())
    }

    /// ext4 on a loop device with sectors of so many bytes.
    pub fn ext4(sector_bytes: u32) -> Result<Mounted, String> {
        let mut mounted = Mounted::nothing();
        let image = mounted.dir.path().join("image");
        std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        let sectors = sector_bytes.to_string();
        let common = ["--find", "--show", "--sector-size", &sectors];
        let device = run("losetup", &[&common[..], &["--direct-io=on", text(&image)]].concat())
            .or_else(|_| run("losetup", &[&common[..], &[text(&image)]].concat()))?;
        mounted.device = Some(device.clone());
        run("mkfs.ext4", &["-q", "-b", "4096", &device])?;
        mounted.mount(&["-o", "errors=remount-ro", &device])?;
        Ok(mounted)
    }

    /// A file system in memory of so many bytes.
    pub fn tmpfs(bytes: u64) -> Result<Mounted, String> {
        let mut mounted = Mounted::nothing();
        mounted.mount(&["-t", "tmpfs", "-o", &format!("size={bytes}"), "none"])?;
        Ok(mounted)
    }

    /// A layer over an empty directory.
    pub fn overlay() -> Result<Mounted, String> {
        let mut mounted = Mounted::nothing();
        let [lower, upper, work] = ["lower", "upper", "work"].map(|name| mounted.dir.path().join(name));
        for dir in [&lower, &upper, &work] {
            std::fs::create_dir(dir).unwrap();
        }
        let layers = format!("lowerdir={},upperdir={},workdir={}", text(&lower), text(&upper), text(&work));
        mounted.mount(&["-t", "overlay", "-o", &layers, "overlay"])?;
        Ok(mounted)
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("mount")
    }

    /// Lets the file system find an error in itself, upon which it turns read-only.
    pub fn break_down(&self) -> Result<(), String> {
        let device = self.device.as_deref().and_then(|device| device.strip_prefix("/dev/")).expect("a device");
        let trigger = format!("/sys/fs/ext4/{device}/trigger_fs_error");
        std::fs::write(&trigger, "1").map_err(|error| format!("{trigger}: {error}"))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.mounted {
            let path = self.path();
            // Lazily, where something is still open.
            let _ = run("umount", &[text(&path)]).or_else(|_| run("umount", &["-l", text(&path)]));
        }
        if let Some(device) = &self.device {
            let _ = run("losetup", &["--detach", device]);
        }
    }
}
