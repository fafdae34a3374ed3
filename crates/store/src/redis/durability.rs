//! The durability settings of the server.
//!
//! Redis is also a cache: it can be configured to lose data, and by default it loses the last second. A store of
//! conversations reports that when it is opened.

use std::fmt;

/// The data that a server still has after a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Everything that it has acknowledged (`appendonly yes`, `appendfsync always`).
    Everything,
    /// All but about the last second (`appendfsync everysec`).
    AllButASecond,
    /// The data that its system has written by chance (`appendfsync no`).
    WhatTheSystemWrote,
    /// The data of its last snapshot, if it has one (`appendonly no`).
    Snapshots,
    /// It does not say.
    Unknown,
}

impl Durability {
    /// Reads it from the answers to `INFO persistence` and `CONFIG GET appendfsync`, as far as there are any.
    pub(super) fn of(info: Option<&str>, appendfsync: Option<&str>) -> Self {
        match (info.and_then(|info| field(info, "aof_enabled")), appendfsync) {
            (Some("0"), _) => Self::Snapshots,
            (Some("1"), Some("always")) => Self::Everything,
            (Some("1"), Some("everysec")) => Self::AllButASecond,
            (Some("1"), Some("no")) => Self::WhatTheSystemWrote,
            (_, _) => Self::Unknown,
        }
    }

    /// Returns what a person should know about it; `None` if all is well.
    pub fn warning(self) -> Option<&'static str> {
        match self {
            Self::Everything => None,
            Self::AllButASecond => Some(
                "may lose the last second of what it acknowledged when it crashes (appendfsync is everysec)",
            ),
            Self::WhatTheSystemWrote => {
                Some("may lose what it acknowledged when its machine crashes (appendfsync is no)")
            }
            Self::Snapshots => Some("loses all since its last snapshot when it stops (appendonly is no)"),
            Self::Unknown => Some("does not say what it keeps when it crashes"),
        }
    }
}

/// Returns the policy by which a server throws keys away when its memory is full, from `INFO memory`, if it does so.
pub(super) fn eviction(info: &str) -> Option<&str> {
    field(info, "maxmemory_policy").filter(|policy| *policy != "noeviction")
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.warning().unwrap_or("keeps everything that it acknowledges"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_follows_from_the_settings() {
        let on = Some("# Persistence\r\nloading:0\r\naof_enabled:1\r\naof_rewrite_in_progress:0\r\n");
        let off = Some("# Persistence\r\naof_enabled:0\r\n");
        let rows = [
            (on, Some("always"), Durability::Everything),
            (on, Some("everysec"), Durability::AllButASecond),
            (on, Some("no"), Durability::WhatTheSystemWrote),
            (on, None, Durability::Unknown),
            (off, Some("always"), Durability::Snapshots),
            (None, Some("always"), Durability::Unknown),
        ];
        for (info, appendfsync, expected) in rows {
            assert_eq!(Durability::of(info, appendfsync), expected, "{info:?} {appendfsync:?}");
        }
        assert_eq!(eviction("maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n"), Some("allkeys-lru"));
        assert_eq!(eviction("maxmemory_policy:noeviction\r\n"), None);
    }
}
