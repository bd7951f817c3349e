//! Files of the guest: written whole or not at all, read in bounded parts.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde_json::{json, Value};

use crate::error::{AgentError, Step};
use crate::limits::FILE_MAX;

/// Write one part; the file gets its name, at once and with its mode, with the last one.
pub fn put(path: &str, mode: u32, offset: u64, last: bool, data: &[u8]) -> Result<(), AgentError> {
    let target = Path::new(path);
    let path = || path.to_owned();
    let fail = |error| AgentError::System {
        step: Step::Put { path: path() },
        error,
    };
    let partial = partial_name(target).ok_or_else(|| AgentError::NoFileName { path: path() })?;
    if offset == 0 {
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).map_err(fail)?;
        }
        match fs::remove_file(&partial) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(fail(e)),
            _ => {}
        }
    }
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    if offset == 0 {
        options.create_new(true);
    }
    let mut file = options.open(&partial).map_err(fail)?;
    let length = file.metadata().map_err(fail)?.len();
    if length != offset {
        return Err(AgentError::PartOffset {
            path: path(),
            offset,
            length,
        });
    }
    file.seek(SeekFrom::Start(offset)).map_err(fail)?;
    file.write_all(data).map_err(fail)?;
    if last {
        file.set_permissions(Permissions::from_mode(mode))
            .map_err(fail)?;
        drop(file);
        fs::rename(&partial, target).map_err(fail)?;
    }
    Ok(())
}

/// Read at most `limit` bytes from `offset`; the flag says whether the end was reached.
pub fn get(path: &str, offset: u64, limit: usize) -> Result<(Vec<u8>, bool), AgentError> {
    let named = || path.to_owned();
    let fail = |error| AgentError::System {
        step: Step::Get { path: named() },
        error,
    };
    let metadata = fs::metadata(path).map_err(fail)?;
    if !metadata.is_file() {
        return Err(AgentError::NotRegular { path: named() });
    }
    let mut file = File::open(path).map_err(fail)?;
    if offset > 0 {
        file.seek(SeekFrom::Start(offset)).map_err(fail)?;
    }
    let mut data = Vec::new();
    // One byte more tells the end; files of /proc have no size to ask for.
    file.take(limit as u64 + 1)
        .read_to_end(&mut data)
        .map_err(fail)?;
    let ended = data.len() <= limit;
    data.truncate(limit);
    Ok((data, ended))
}

/// Read many small files: their sizes (null: not there) and their contents one after the other.
pub fn read_many(paths: &[String], total_max: usize) -> Result<(Value, Vec<u8>), AgentError> {
    let mut all = Vec::new();
    let mut sizes = Vec::new();
    for path in paths {
        match get(path, 0, FILE_MAX) {
            Ok((data, _)) => {
                sizes.push(json!(data.len()));
                all.extend_from_slice(&data);
            }
            Err(_) => sizes.push(Value::Null),
        }
        if all.len() > total_max {
            return Err(AgentError::FilesTooLong { most: total_max });
        }
    }
    Ok((Value::Array(sizes), all))
}

/// Kind, size in bytes and mode; null if there is nothing.
pub fn stat(path: &str) -> Result<Value, AgentError> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Value::Null)
        }
        Err(error) => {
            let step = Step::Stat {
                path: path.to_owned(),
            };
            return Err(AgentError::System { step, error });
        }
    };
    let kind = metadata.file_type();
    let kind = if kind.is_file() {
        "file"
    } else if kind.is_dir() {
        "directory"
    } else if kind.is_char_device() || kind.is_block_device() {
        "device"
    } else {
        "other"
    };
    Ok(json!({
        "kind": kind,
        "size": metadata.len(),
        "mode": metadata.permissions().mode() & 0o7777,
    }))
}

/// Look a program up as execvp would.
#[must_use]
pub fn which(program: &str, path: &str) -> Option<PathBuf> {
    let executable = |candidate: &Path| {
        fs::metadata(candidate).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        let candidate = PathBuf::from(program);
        return executable(&candidate).then_some(candidate);
    }
    if program.is_empty() {
        return None;
    }
    path.split(':')
        .map(|dir| Path::new(dir).join(program))
        .find(|candidate| executable(candidate))
}

fn partial_name(target: &Path) -> Option<PathBuf> {
    let mut name = target.file_name()?.to_os_string();
    name.push(".tm-part");
    Some(target.with_file_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("tm-agent-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
        fn path(&self, name: &str) -> String {
            self.0.join(name).to_str().unwrap().to_owned()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_file_appears_whole_with_its_mode_and_parents() {
        let scratch = Scratch::new("whole");
        let path = scratch.path("a/b/key");
        put(&path, 0o640, 0, false, b"hello ").unwrap();
        assert_eq!(stat(&path).unwrap(), Value::Null);
        put(&path, 0o640, 6, true, b"world").unwrap();
        assert_eq!(
            stat(&path).unwrap(),
            json!({"kind": "file", "size": 11, "mode": 0o640})
        );
        assert_eq!(get(&path, 0, 100).unwrap(), (b"hello world".to_vec(), true));
        assert_eq!(get(&path, 6, 5).unwrap(), (b"world".to_vec(), true));
        assert_eq!(get(&path, 0, 5).unwrap(), (b"hello".to_vec(), false));
    }

    #[test]
    fn a_part_out_of_order_is_refused() {
        let scratch = Scratch::new("order");
        let path = scratch.path("f");
        put(&path, 0o600, 0, false, b"abc").unwrap();
        let error = put(&path, 0o600, 7, true, b"x").unwrap_err();
        let AgentError::PartOffset { offset, length, .. } = error else {
            panic!("{error}");
        };
        assert_eq!((offset, length), (7, 3));
    }

    #[test]
    fn a_new_put_replaces_an_old_half() {
        let scratch = Scratch::new("half");
        let path = scratch.path("f");
        put(&path, 0o600, 0, false, b"old old").unwrap();
        put(&path, 0o600, 0, true, b"new").unwrap();
        assert_eq!(get(&path, 0, 10).unwrap().0, b"new");
    }

    #[test]
    fn a_missing_file_is_null_among_many() {
        let scratch = Scratch::new("many");
        let (there, gone) = (scratch.path("a"), scratch.path("b"));
        put(&there, 0o600, 0, true, b"1").unwrap();
        let (sizes, data) = read_many(&[there.clone(), gone, there], 10).unwrap();
        assert_eq!((sizes, data), (json!([1, null, 1]), b"11".to_vec()));
    }

    #[test]
    fn files_of_proc_have_no_size_and_are_read_all_the_same() {
        let (data, ended) = get("/proc/self/stat", 0, 4096).unwrap();
        assert!(ended && data.starts_with(std::process::id().to_string().as_bytes()));
    }

    #[test]
    fn a_directory_is_no_file() {
        let error = get("/proc", 0, 10).unwrap_err();
        assert!(matches!(error, AgentError::NotRegular { .. }), "{error}");
    }

    #[test]
    fn what_cannot_be_done_is_reported_with_its_path() {
        let gone = "/proc/tm-no-such-file";
        let reported = get(gone, 0, 10).unwrap_err().to_string();
        assert!(
            reported.starts_with(&format!("get {gone}: No such file")),
            "{reported}"
        );
        let reported = put("/", 0o600, 0, true, b"").unwrap_err().to_string();
        assert!(
            reported.starts_with("put /: has no file name"),
            "{reported}"
        );
        let scratch = Scratch::new("long");
        let long = scratch.path("f");
        put(&long, 0o600, 0, true, b"12345678").unwrap();
        let error = read_many(&[long.clone(), long], 10).unwrap_err();
        assert!(
            matches!(error, AgentError::FilesTooLong { most: 10 }),
            "{error}"
        );
    }

    #[test]
    fn a_program_is_found_on_the_path_only_if_it_can_be_run() {
        let scratch = Scratch::new("which");
        put(&scratch.path("bin/yes"), 0o755, 0, true, b"").unwrap();
        put(&scratch.path("bin/no"), 0o644, 0, true, b"").unwrap();
        let path = scratch.path("bin");
        assert_eq!(
            which("yes", &path),
            Some(PathBuf::from(scratch.path("bin/yes")))
        );
        assert_eq!(which("no", &path), None);
        assert_eq!(which("", &path), None);
    }
}
