//! A guest asks for directories of the host: `cargo run --example mounts --features mounts`.
#![allow(missing_docs)]

use std::error::Error;
use std::fs;
use std::os::unix::fs::symlink;

use beneath::mounts::{Base, Mode, Request, Rules};
use beneath::{GuestPath, MountPoint, Root, ambient_authority, safe_name};

fn main() -> Result<(), Box<dyn Error>> {
    let host = tempfile::tempdir()?;
    let at = |path: &str| host.path().join(path);
    for dir in ["projects/app/src", "projects/app/.ssh", "data/models", "secrets"] {
        fs::create_dir_all(at(dir))?;
    }
    fs::write(at("projects/app/src/main.rs"), "fn main() {}")?;
    fs::write(at("secrets/main.rs"), "SECRET")?;
    symlink("../secrets", at("projects/link"))?;

    let open = |name: &str| Root::open_ambient(at(name), ambient_authority());
    let rules = Rules::new()
        .with_base(Base::new(safe_name("projects")?, open("projects")?).with_users(["ada"]))
        .with_base(
            Base::new(safe_name("data")?, open("data")?).for_everybody().with_max_mode(Mode::ReadWrite),
        );

    let ask = |alias, base, subpath, mode| Request { alias, base, subpath, mode };
    let requests = [
        ask("source", "projects", "app/src", Mode::ReadOnly),
        ask("models", "data", "models", Mode::ReadWrite),
        ask("linked", "projects", "link", Mode::ReadOnly),
        ask("keys", "projects", "app/.ssh", Mode::ReadOnly),
        ask("writable", "projects", "app", Mode::ReadWrite),
    ];
    println!("ada asks for five directories, one request at a time:");
    for request in &requests {
        let answer = match rules.grant("ada", &[*request]) {
            Ok(_) => "granted".to_owned(),
            Err(denials) => denials.iter().map(|(_, denial)| denial.code()).collect(),
        };
        let asked = format!("{}/{}", request.base, request.subpath);
        println!("  {:<9} {asked:<18} {}  {answer}", request.alias, request.mode.as_str());
    }
    let denied = rules.grant("ada", &requests).err().map_or(0, |denials| denials.iter().count());
    println!("All five as one set: denied, for {denied} of them.\n");

    let granted = requests.get(..2).unwrap_or_default();
    let mounts = rules.grant("ada", granted)?;
    let path = at("projects/app/src").canonicalize()?;
    fs::rename(at("projects/app/src"), at("projects/app/old"))?;
    symlink(at("secrets"), at("projects/app/src"))?;
    println!("After the grant, app/src is exchanged for a link to the host's secrets.");

    let (mount, file) = mounts.resolve("/mnt/host/source/main.rs", &MountPoint::new("/mnt/host")?)?;
    let by_handle = mount.read_contained(&file, 1024)?;
    println!("  by the handle of the grant: {}", String::from_utf8_lossy(&by_handle));
    println!("  by the path that was checked: {}", fs::read_to_string(path.join("main.rs"))?);

    let refused = mount.write_exclusive(&GuestPath::new("new.rs")?, "");
    println!("  a write: {}", refused.err().map_or_else(String::new, |error| error.to_string()));
    let bwrap = mounts.hand_over(&MountPoint::new("/mnt/host")?)?.bwrap()?;
    println!("\nFor bubblewrap: {}", bwrap.args().join(" "));
    Ok(())
}
