//! The guest as a process: starts, says that it is ready, and attacks until its host is gone.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use super::Bout;
use super::rig::Part;
use crate::rig::Dice;

/// Attacks until the process that started this one is gone, with pauses of up to so many microseconds.
pub(super) fn attack(bout: &Bout, base: &Path, pause: u64, seed: u64) -> io::Result<()> {
    let parent = rustix::process::getppid();
    let mut flip = bout.script.guest(base)?;
    println!("ready");
    io::stdout().flush()?;
    let mut dice = Dice::new(seed);
    while rustix::process::getppid() == parent {
        // Bursts keep a second core busy. The pause hands a single core to the host, and its end takes the core away
        // at a moment the host cannot choose.
        for _ in 0..dice.below(16) + 1 {
            let _ = flip(&mut dice);
            if dice.below(4) == 0 {
                spin(&mut dice, 256);
            }
        }
        std::thread::sleep(Duration::from_micros(dice.below(pause)));
    }
    Ok(())
}

/// The attacking process. It ends with this value.
pub(super) struct Guest(Child);

impl Guest {
    pub(super) fn start(bout: &Bout, base: &Path, pause: Duration, seed: u64) -> io::Result<Self> {
        let part = Part::Guest { base: base.into(), pause: pause.as_micros() as u64, seed };
        let mut child = part.command(bout)?.stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take();
        let guest = Self(child);
        let mut line = String::new();
        if let Some(stdout) = stdout {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        match &*line {
            "ready\n" => Ok(guest),
            _ => Err(io::Error::other(format!("the guest of {bout:?} did not start"))),
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Keeps the core busy for up to so many turns.
pub(super) fn spin(dice: &mut Dice, most: u64) {
    (0..dice.below(most)).for_each(|_| std::hint::spin_loop());
}
