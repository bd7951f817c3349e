//! Sockets in other network namespaces: what is opened in one stays there.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use crate::IoError;

/// Does something in a network namespace and comes back; with none, in the one that it is in.
///
/// Only the calling thread enters it. Needs `CAP_SYS_ADMIN`.
pub fn within<T>(
    namespace: Option<&Path>,
    act: impl FnOnce() -> Result<T, IoError>,
) -> Result<T, IoError> {
    let Some(path) = namespace else {
        return act();
    };
    let own = open(Path::new("/proc/thread-self/ns/net"))?;
    enter(&open(path)?, path)?;
    let done = act();
    enter(&own, Path::new("the namespace before it"))?;
    done
}

fn open(path: &Path) -> Result<File, IoError> {
    File::open(path).map_err(|error| IoError::new(format!("namespace {}", path.display()), error))
}

fn enter(namespace: &File, name: &Path) -> Result<(), IoError> {
    // SAFETY: the descriptor is open; the kernel refuses what is no network namespace.
    if unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } == 0 {
        return Ok(());
    }
    Err(IoError::last(format!("cannot enter {}", name.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_namespace_nothing_is_entered() {
        assert_eq!(within(None, || Ok(7)).unwrap(), 7);
    }

    #[test]
    fn what_is_no_namespace_is_named() {
        let error = within(Some(Path::new("/nowhere/ns")), || Ok(())).unwrap_err();
        assert_eq!(error.what, "namespace /nowhere/ns");
        let file = within(Some(Path::new("/dev/null")), || Ok(())).unwrap_err();
        assert_eq!(file.what, "cannot enter /dev/null");
    }
}
