//! What the command line says.

use std::collections::HashMap;
use std::ffi::OsString;
use std::time::Duration;

/// Words in their order, and numbers with a name: `--drain 2000`.
#[derive(Debug)]
pub struct Arguments {
    words: std::vec::IntoIter<OsString>,
    numbers: HashMap<String, u64>,
}

impl Arguments {
    /// Reads the command line. `known` are the names without their dashes.
    ///
    /// # Errors
    /// In words, for a name that is unknown or has no number.
    pub fn read(arguments: impl IntoIterator<Item = OsString>, known: &[&str]) -> Result<Self, String> {
        let (mut words, mut numbers) = (Vec::new(), HashMap::new());
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let Some(name) = argument.to_str().and_then(|text| text.strip_prefix("--")) else {
                words.push(argument);
                continue;
            };
            if !known.contains(&name) {
                return Err(format!("--{name} is unknown; there are --{}", known.join(", --")));
            }
            let number = arguments.next().and_then(|text| text.to_str()?.parse().ok());
            let number = number.ok_or_else(|| format!("--{name} needs a number"))?;
            numbers.insert(name.to_owned(), number);
        }
        Ok(Self { words: words.into_iter(), numbers })
    }

    /// The next word.
    pub fn word(&mut self) -> Option<OsString> {
        self.words.next()
    }

    /// The number of that name.
    #[must_use]
    pub fn number(&self, name: &str, default: u64) -> u64 {
        self.numbers.get(name).copied().unwrap_or(default)
    }

    /// The same, of milliseconds.
    #[must_use]
    pub fn time(&self, name: &str, default: Duration) -> Duration {
        self.numbers.get(name).map_or(default, |number| Duration::from_millis(*number))
    }
}
