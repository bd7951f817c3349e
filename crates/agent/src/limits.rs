//! What the agent takes and holds at most; its errors name these.

/// Largest JSON header of a frame: room for an argument list of the size the requests allow.
pub const HEADER_MAX: usize = 512 * 1024;
/// Largest payload of one frame; longer contents are sent in parts.
pub const PAYLOAD_MAX: usize = 1024 * 1024;
/// Most arguments or environment variables of a program.
pub const ARGS_MAX: usize = 4096;
/// Most files read by one `read_many`.
pub const FILES_MAX: usize = 1024;
/// Most bytes read of each of them.
pub const FILE_MAX: usize = 64 * 1024;
/// Most bytes waiting for a program that does not read its standard input.
pub const STDIN_MAX: usize = 64 * 1024 * 1024;
/// Most bytes that wait for all programs together to read them.
pub const UNREAD_MAX: usize = 2 * STDIN_MAX;
/// Most programs at a time.
pub const CHILDREN_MAX: usize = 1024;
