//! Without network namespaces.

use std::path::Path;

use crate::IoError;

/// Does something where the program is; an error where a namespace is asked for.
pub fn within<T>(
    namespace: Option<&Path>,
    act: impl FnOnce() -> Result<T, IoError>,
) -> Result<T, IoError> {
    namespace.map_or_else(act, |path| {
        let what = format!("netns is {}", path.display());
        Err(IoError::needs_linux(what))
    })
}
