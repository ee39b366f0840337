//! What no tool leaves, and a guest may.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use rustix::fs::{Mode, OFlags, mkdirat, openat};

use crate::is_root;

/// Names that somebody has once refused, cut, quoted wrongly or taken for something else; none holds a slash.
const NAMES: &str = ".../..../.hidden/..x/-rf/--help/-/~/~root/$HOME/$(touch owned)/`id`/a;b/a&b/a|b/a b/ leading/\
     trailing /  /tab\there/a\nb/a\r/a\\b/C:\\x/aux.rs/CON/nul.txt/LPT1/x./Q3: plan?.md/\
     2026-11-16T08:00:00.log/<>|*/%2e%2e%2f/%s%n/a'b/a\"b/caf\u{e9}/cafe\u{301}/\u{202e}gpj.exe/\
     \u{feff}bom/\u{200b}/\u{2028}/\u{1f600}/\u{ff0f}/workspace/inbox/.git/a/A/.beneath-mine/.session";

/// A file of each name, a directory that holds one, and an empty one.
pub fn names(dir: &Path) {
    fs::create_dir_all(dir.join("single")).unwrap();
    for byte in (1..=u8::MAX).filter(|byte| !b"/.".contains(byte)) {
        fs::write(dir.join("single").join(OsStr::from_bytes(&[byte])), [byte]).unwrap();
    }
    let bytes = [&b"\xff\xfe"[..], b"caf\xe9", b"\xc3"].map(|bytes| OsString::from_vec(bytes.to_vec()));
    NAMES.split('/').map(OsString::from).chain(bytes).for_each(|name| thrice(dir, &name));
}

/// The longest names that Linux takes.
pub fn long_names(dir: &Path) {
    [b'n', 0x80].iter().for_each(|byte| thrice(dir, OsStr::from_bytes(&[*byte; 255])));
}

fn thrice(dir: &Path, name: &OsStr) {
    fs::create_dir_all(dir.join("in").join(name)).unwrap();
    fs::write(dir.join("in").join(name).join(name), name.as_bytes()).unwrap();
    symlink(name, dir.join("in").join(name).join(".link")).unwrap();
    fs::create_dir_all(dir.join("empty").join(name)).unwrap();
}

/// Files and directories of each mode that somebody uses.
pub fn modes(dir: &Path) {
    fs::create_dir_all(dir).unwrap();
    let mut modes = vec![0o755, 0o644, 0o444, 0o500, 0o711, 0o777, 0o400];
    if is_root() {
        modes.push(0);
    }
    let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    for mode in modes {
        let (file, inside) = (dir.join(format!("file-{mode:o}")), dir.join(format!("directory-{mode:o}")));
        fs::write(&file, "#!/bin/sh\n").unwrap();
        set(&file, mode);
        // A directory that cannot be entered is nobody's to copy.
        if is_root() || mode & 0o500 == 0o500 {
            fs::create_dir(&inside).unwrap();
            fs::write(inside.join("file"), "x").unwrap();
            set(&inside, mode);
        }
    }
}

/// Links that lead somewhere, nowhere, outside and round in a circle.
pub fn links(dir: &Path) {
    fs::create_dir_all(dir.join("real")).unwrap();
    fs::write(dir.join("real/file"), "x").unwrap();
    let long = "x/".repeat(1500);
    let texts: &[(&str, &[u8])] = &[
        ("file", b"real/file"),
        ("directory", b"real"),
        ("dangling", b"nowhere"),
        ("self", b"self"),
        ("there", b"back"),
        ("back", b"there"),
        ("absolute", b"/etc/passwd"),
        ("up", b"../../../../etc/passwd"),
        ("proc", b"/proc/self/root"),
        ("bytes", b"\xff\xfe\n"),
        ("blank", b" "),
        ("long", long.as_bytes()),
    ];
    for (name, text) in texts {
        symlink(OsStr::from_bytes(text), dir.join(name)).unwrap();
    }
}

/// Nothing, something and a file with holes.
pub fn sizes(dir: &Path) {
    fs::create_dir_all(dir.join("empty/empty/empty")).unwrap();
    fs::write(dir.join("nothing"), "").unwrap();
    fs::write(dir.join("binary"), (0..300_000_u32).map(|n| (n * 31 % 251) as u8).collect::<Vec<_>>())
        .unwrap();
    let sparse = File::create(dir.join("sparse")).unwrap();
    sparse.write_all_at(b"middle", 5 << 20).unwrap();
    sparse.set_len(16 << 20).unwrap();
}

/// Directories up to and past the longest path, with a file and a link in each.
pub fn deep(dir: &Path) {
    fs::create_dir_all(dir).unwrap();
    let name = "n".repeat(250);
    let mut at = rustix::fs::open(dir, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    for level in 0..20 {
        mkdirat(&at, &*name, Mode::RWXU).unwrap();
        at = openat(&at, &*name, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let file =
            openat(&at, "file", OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)
                .unwrap();
        rustix::io::write(&file, format!("level {level}").as_bytes()).unwrap();
        rustix::fs::symlinkat("file", &at, "link").unwrap();
    }
}
