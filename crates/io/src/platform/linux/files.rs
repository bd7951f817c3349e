//! Files that others may not read.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;

/// For its owner only, and no link to another place.
pub fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options.mode(0o600).custom_flags(libc::O_NOFOLLOW)
}
