//! A guest in bubblewrap.

use std::path::Path;
use std::process::Command;

/// bubblewrap with the system's programs, to be given mounts and a command.
pub fn command() -> Command {
    let mut command = Command::new("bwrap");
    command.args(["--unshare-user", "--die-with-parent", "--ro-bind", "/usr", "/usr", "--proc", "/proc"]);
    for dir in ["bin", "lib", "lib64"] {
        if Path::new("/usr").join(dir).exists() {
            command.args(["--symlink", &format!("usr/{dir}"), &format!("/{dir}")]);
        }
    }
    command
}
