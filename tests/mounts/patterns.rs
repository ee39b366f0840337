//! Patterns of one component.

use beneath::ErrorKind;
use beneath::mounts::NamePatterns;
use beneath_kit::kind;
use globset::GlobBuilder;
use proptest::prelude::*;

proptest! {
    #[test]
    fn the_four_forms_mean_what_globset_means_by_them(
        front in any::<bool>(),
        text in "[a-cA-C._-]{1,4}",
        back in any::<bool>(),
        name in "[a-cA-C._-]{1,8}",
        around in any::<bool>(),
    ) {
        let star = |is| if is { "*" } else { "" };
        let pattern = format!("{}{text}{}", star(front), star(back));
        let name = if around { format!("{name}{text}{name}") } else { name };
        let glob = GlobBuilder::new(&pattern).case_insensitive(true).literal_separator(true).build().unwrap();
        let expected = glob.compile_matcher().is_match(&name);
        prop_assert_eq!(NamePatterns::new([&pattern]).unwrap().matches(&name), expected, "{} {}", pattern, name);
    }
}

#[test]
fn what_is_none_of_the_four_forms_is_refused() {
    for pattern in ["", "*", "**", "a*b", "*a*b", "a/b", "/a", "a/*", "a\0"] {
        assert_eq!(kind(NamePatterns::new([pattern])), ErrorKind::InvalidData, "{pattern:?}");
    }
}

#[test]
fn a_blocked_name_is_a_component_and_not_a_part_of_the_path() {
    let patterns = NamePatterns::new(["credentials"]).unwrap();
    let blocked = |path: &str| path.split('/').any(|component| patterns.matches(component));
    for (path, expected) in [("credentials", true), ("a/Credentials/b", true), ("my-credentials-doc", false)]
    {
        assert_eq!(blocked(path), expected, "{path}");
        assert!(path.to_lowercase().contains("credentials"), "control: a search in the text finds all");
    }
}
