//! Unpredictable bytes, and bytes as text.

use rustix::io::{Errno, retry_on_intr};
use rustix::rand::{GetRandomFlags, getrandom};

/// 128 bits from the system, as 32 hexadecimal digits.
pub(crate) fn unguessable() -> Result<String, Errno> {
    let mut bytes = [0_u8; 16];
    let mut filled = 0;
    // A signal can only interrupt the wait for the kernel's first seed.
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        filled += retry_on_intr(|| getrandom(&mut *rest, GetRandomFlags::empty()))?;
    }
    Ok(hex(bytes))
}

/// Two lower-case digits for each byte.
pub(crate) fn hex(bytes: impl IntoIterator<Item = u8>) -> String {
    let halves = bytes.into_iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    halves.filter_map(|half| char::from_digit(half.into(), 16)).collect()
}
