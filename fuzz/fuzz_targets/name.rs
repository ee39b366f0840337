//! `safe_name` against the oracle, and what repairs, numbers and derives names.
#![no_main]

use beneath::{AttachmentHint, ErrorKind, SafeName, safe_name};
use beneath_fuzz::{agreed, oracle};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|raw: &[u8]| {
    let repaired = SafeName::repair(raw);
    match agreed(safe_name(raw), oracle::name(raw), ErrorKind::InvalidName) {
        Some(name) => {
            assert_eq!(name.as_str().as_bytes(), raw);
            assert_eq!(name, repaired);
        }
        None => assert!(oracle::name(repaired.as_str().as_bytes()), "repaired to {repaired:?}"),
    }
    assert_eq!(SafeName::repair(repaired.as_str()), repaired);

    let numbered = [2, 10, u32::MAX].map(|n| repaired.numbered(n));
    assert_eq!(repaired.numbered(1), repaired);
    for (place, name) in numbered.iter().enumerate() {
        assert!(oracle::name(name.as_str().as_bytes()), "numbered {name:?}");
        assert!(*name != repaired && !numbered[..place].contains(name), "{name:?} twice");
    }

    if let Ok(text) = str::from_utf8(raw) {
        let given = AttachmentHint { name: Some(text), mime: None, kind: None }.to_name(3);
        let nothing_left = given.as_str() == "attachment-3" && repaired.as_str() == "file";
        assert!(given == repaired || nothing_left, "{given:?} and {repaired:?}");
        let derived = AttachmentHint { name: None, mime: Some(text), kind: Some(text) }.to_name(3);
        assert!(oracle::name(derived.as_str().as_bytes()) && derived.stem() == "attachment-3", "{derived:?}");
    }
});
