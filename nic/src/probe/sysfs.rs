//! An interface's folder below `/sys/class/net`: of the namespace that it was mounted in, which need not be this thread's.

use std::fs;
use std::path::{Path, PathBuf};

use crate::packet::InterfaceInfo;

/// The folder of an interface, once it is sure that it is this one.
#[derive(Debug)]
pub struct Sysfs(PathBuf);

impl Sysfs {
    /// The folder, where it is there and its index and address agree.
    pub fn of(info: &InterfaceInfo) -> Option<Sysfs> {
        Sysfs::below(Path::new("/sys/class/net"), info)
    }

    fn below(root: &Path, info: &InterfaceInfo) -> Option<Sysfs> {
        let sysfs = Sysfs(root.join(&info.name));
        let is_this = sysfs.number("ifindex") == Some(u64::from(info.index))
            && (info.mac.is_zero() || sysfs.text("address").as_deref() == Some(info.mac.to_string().as_str()));
        is_this.then_some(sysfs)
    }

    fn text(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.0.join(name)).ok().map(|text| text.trim().to_owned())
    }

    /// A file with a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// The interrupts of its device; a virtio device's are its parent's.
    pub fn interrupts(&self) -> Vec<u32> {
        let device = self.0.join("device");
        let folders = [device.join("msi_irqs"), device.join("../msi_irqs")];
        let entries = folders.iter().find_map(|folder| fs::read_dir(folder).ok());
        let mut numbers: Vec<u32> =
            entries.into_iter().flatten().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
        numbers.sort_unstable();
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_another_interface_is_not_believed() {
        let root = tempfile::tempdir().expect("a directory");
        let mut lo = InterfaceInfo::read("lo").expect("every namespace has one");
        fs::create_dir_all(root.path().join("lo/device/msi_irqs/42")).expect("it can be made");
        fs::write(root.path().join("lo/ifindex"), format!("{}\n", lo.index)).expect("it can be written");
        fs::write(root.path().join("lo/napi_defer_hard_irqs"), "2\n").expect("it can be written");
        let sysfs = Sysfs::below(root.path(), &lo).expect("it is this one");
        assert_eq!((sysfs.number("napi_defer_hard_irqs"), sysfs.interrupts()), (Some(2), vec![42]));
        lo.index += 1;
        assert!(Sysfs::below(root.path(), &lo).is_none());
    }
}
