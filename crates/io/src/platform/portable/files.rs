//! Files that others may not read.

use std::fs::OpenOptions;

/// For its owner only; where the system has no such mode, as its folder is.
pub fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;

        options.mode(0o600).custom_flags(libc::O_NOFOLLOW)
    }
    #[cfg(not(unix))]
    options
}
