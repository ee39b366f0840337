//! The house: which module may use which.
//!
//! Read from the source, so that the picture in `docs/modules.md` stays true. `BENEATH_BLESS=1 cargo test --test house` writes
//! the picture anew.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use syn::visit::Visit;

/// From top to bottom. A module uses only what is in a lower line, never another of its own line.
const LAYERS: &[&[&str]] = &[
    &["artifacts", "mailbox", "mounts", "queue"],
    &["session"],
    &["tree"],
    &["root"],
    &["name"],
    &["report"],
    &["error"],
    &["entropy"],
];

/// A module's path in the crate; empty for `lib.rs`.
type Module = Vec<String>;

#[derive(Default)]
struct House {
    /// What each module names, as paths in the crate.
    named: BTreeMap<Module, BTreeSet<Module>>,
    /// Where what a door passes on really is.
    passed_on: BTreeMap<Module, Module>,
}

/// Collects the paths of one file.
struct Reader<'h> {
    house: &'h mut House,
    /// The module that is the file.
    file: Module,
    /// The module that is being read: the file's, or one inside it.
    module: Module,
    modules: &'h BTreeSet<Module>,
}

impl House {
    fn read() -> Self {
        let mut files = BTreeMap::new();
        collect(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut Vec::new(), &mut files);
        let modules: BTreeSet<Module> = files.keys().cloned().collect();
        let mut house = Self::default();
        for (module, text) in files {
            house.named.insert(module.clone(), BTreeSet::new());
            let file = syn::parse_file(&text).unwrap_or_else(|error| panic!("{module:?}: {error}"));
            Reader { house: &mut house, file: module.clone(), module, modules: &modules }.visit_file(&file);
        }
        house
    }

    /// The module that holds what `path` names.
    fn holder(&self, mut path: Module) -> Module {
        // A door may pass on what another door passes on.
        while let Some((door, place)) =
            (1..=path.len()).rev().find_map(|end| Some((end, self.passed_on.get(&path[..end])?)))
        {
            path = [place.as_slice(), &path[door..]].concat();
        }
        let end = (0..=path.len()).rev().find(|end| self.named.contains_key(&path[..*end]));
        path[..end.expect("lib.rs is a prefix of all")].to_vec()
    }

    /// The arrows between modules.
    fn arrows(&self) -> BTreeMap<Module, BTreeSet<Module>> {
        let used = |(module, paths): (&Module, &BTreeSet<Module>)| {
            let holders = paths.iter().map(|path| self.holder(path.clone()));
            (module.clone(), holders.filter(|holder| holder != module).collect())
        };
        self.named.iter().map(used).collect()
    }
}

/// Every file beneath `dir`, by the module that it is.
fn collect(dir: &Path, module: &mut Module, files: &mut BTreeMap<Module, String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            module.push(name);
            collect(&path, module, files);
            module.pop();
        } else {
            let own = if name == "lib" { Vec::new() } else { [module.as_slice(), &[name]].concat() };
            files.insert(own, fs::read_to_string(&path).unwrap());
        }
    }
}

impl Reader<'_> {
    /// The path from the crate's top, if it begins in this crate.
    fn absolute(&self, path: &[String]) -> Option<Module> {
        let up = path.iter().take_while(|part| *part == "super").count();
        let rest = &path[up..];
        match rest.first().map(String::as_str) {
            Some("crate") => Some(rest[1..].to_vec()),
            Some("self") => Some([self.module.as_slice(), &rest[1..]].concat()),
            Some(_) if up > 0 => Some([&self.module[..self.module.len() - up], rest].concat()),
            Some(first) => {
                let child = [self.module.as_slice(), &[first.to_owned()]].concat();
                self.modules.contains(&child).then(|| [self.module.as_slice(), rest].concat())
            }
            None => None,
        }
    }

    fn note(&mut self, path: &[String]) {
        if let Some(path) = self.absolute(path) {
            self.house.named.get_mut(&self.file).unwrap().insert(path);
        }
    }

    fn note_use(&mut self, tree: &syn::UseTree, before: &[String], passes_on: bool) {
        let (path, name) = match tree {
            syn::UseTree::Path(path) => {
                return self.note_use(&path.tree, &[before, &[path.ident.to_string()]].concat(), passes_on);
            }
            syn::UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.note_use(tree, before, passes_on));
            }
            syn::UseTree::Name(name) if name.ident == "self" => (before.to_vec(), before.last().cloned()),
            syn::UseTree::Name(name) => {
                ([before, &[name.ident.to_string()]].concat(), Some(name.ident.to_string()))
            }
            syn::UseTree::Rename(rename) => {
                ([before, &[rename.ident.to_string()]].concat(), Some(rename.rename.to_string()))
            }
            syn::UseTree::Glob(_) => (before.to_vec(), None),
        };
        let inner = self.absolute(&path).filter(|path| path.starts_with(&self.file));
        match (inner, name) {
            // A door that passes on what is behind it does not use it.
            (Some(inner), Some(name)) if passes_on => {
                let here = [self.module.as_slice(), &[name]].concat();
                // A function may have the name of its module.
                if !inner.starts_with(&here) {
                    self.house.passed_on.insert(here, inner);
                }
            }
            _ => self.note(&path),
        }
    }
}

fn only_for(attributes: &[syn::Attribute], words: &[&str]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Ident>().is_ok_and(|word| words.iter().any(|only| word == only))
    })
}

impl<'a> Visit<'a> for Reader<'_> {
    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        if !only_for(&item.attrs, &["test"]) {
            self.module.push(item.ident.to_string());
            syn::visit::visit_item_mod(self, item);
            self.module.pop();
        }
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        if !only_for(&item.attrs, &["doc", "test"]) {
            let passes_on = !matches!(item.vis, syn::Visibility::Inherited);
            self.note_use(&item.tree, &[], passes_on);
        }
    }

    /// What a macro gets is no syntax yet, so its paths are found by their look.
    fn visit_macro(&mut self, item: &'a syn::Macro) {
        let text = item.tokens.to_string().replace(" :: ", "::");
        for word in text.split(|c: char| !(c.is_alphanumeric() || "_:".contains(c))) {
            let parts: Vec<String> = word.split("::").map(str::to_owned).collect();
            if parts.len() > 1 && parts.iter().all(|part| !part.is_empty()) {
                self.note(&parts);
            }
        }
        syn::visit::visit_macro(self, item);
    }

    fn visit_visibility(&mut self, _: &'a syn::Visibility) {}

    fn visit_path(&mut self, path: &'a syn::Path) {
        if path.segments.len() > 1 {
            let parts: Vec<String> = path.segments.iter().map(|part| part.ident.to_string()).collect();
            self.note(&parts);
        }
        syn::visit::visit_path(self, path);
    }
}

fn shown(module: &Module) -> String {
    if module.is_empty() { "lib".into() } else { module.join("::") }
}

fn layer(module: &Module) -> usize {
    let top = module.first().map_or("lib", String::as_str);
    LAYERS.iter().position(|line| line.contains(&top)).unwrap_or_else(|| panic!("{top} is in no layer"))
}

#[test]
fn arrows_point_down_only() {
    let arrows = House::read().arrows();
    let inside = |module: &&Module| !module.is_empty();
    let mut upward = Vec::new();
    for (from, to) in arrows.iter().filter(|(from, _)| inside(from)) {
        for to in to.iter() {
            let same_room = from.first() == to.first();
            if to.is_empty() || (!same_room && layer(to) <= layer(from)) {
                upward.push(format!("{} uses {}", shown(from), shown(to)));
            }
        }
    }
    assert!(upward.is_empty(), "{upward:#?}");
}

#[test]
fn no_module_uses_itself_through_others() {
    let arrows = House::read().arrows();
    let mut circles: Vec<String> = Vec::new();
    for module in arrows.keys() {
        let mut reached = BTreeSet::new();
        let mut next: Vec<&Module> = arrows[module].iter().collect();
        while let Some(other) = next.pop() {
            if reached.insert(other) {
                next.extend(&arrows[other]);
            }
        }
        if reached.contains(module) {
            let used: Vec<String> = arrows[module].iter().map(shown).collect();
            circles.push(format!("{} uses {}", shown(module), used.join(", ")));
        }
    }
    assert!(circles.is_empty(), "modules in circles: {circles:#?}");
}

/// The rooms that the modules of `room` use.
fn used_by<'a>(room: &str, arrows: &'a BTreeMap<Module, BTreeSet<Module>>) -> BTreeSet<&'a str> {
    let of_room = |module: &Module| module.first().is_some_and(|first| first == room);
    let used = arrows.iter().filter(|(from, _)| of_room(from)).flat_map(|(_, to)| to);
    used.filter_map(|to| to.first()).map(String::as_str).filter(|first| *first != room).collect()
}

/// The rooms as a diagram, and the files of each room as a table.
fn picture(arrows: &BTreeMap<Module, BTreeSet<Module>>) -> String {
    let mut text = String::from(
        "# Modules\n\nWritten by `BENEATH_BLESS=1 cargo test --test house` from the source, and compared with it by \
         `cargo test`. An arrow means *uses*. None points up, and there is no circle, neither between rooms nor between \
         files.\n\n```mermaid\ngraph TD\n",
    );
    let rooms = || LAYERS.iter().flat_map(|line| line.iter());
    for room in rooms() {
        for used in used_by(room, arrows) {
            writeln!(text, "    {room} --> {used}").unwrap();
        }
    }
    text.push_str("```\n");
    for room in rooms() {
        let files: Vec<_> = arrows.iter().filter(|(from, _)| from.len() > 1 && from[0] == **room).collect();
        if files.is_empty() {
            continue;
        }
        writeln!(text, "\n## {room}\n\n| file | uses of this room |\n|---|---|").unwrap();
        for (from, to) in files {
            let inside = to.iter().filter(|to| to.first() == from.first());
            let name = |to: &Module| if to.len() == 1 { room.to_string() } else { to[1..].join("::") };
            let used: Vec<String> = inside.map(name).collect();
            writeln!(text, "| `{}` | {} |", from[1..].join("::"), used.join(", ")).unwrap();
        }
    }
    text
}

#[test]
fn the_picture_in_the_docs_is_true() {
    let file = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/modules.md"));
    let now = picture(&House::read().arrows());
    if std::env::var_os("BENEATH_BLESS").is_some() {
        fs::write(file, &now).unwrap();
    }
    let then = fs::read_to_string(file).unwrap_or_default();
    assert!(
        then == now,
        "docs/modules.md is not what the source says: BENEATH_BLESS=1 cargo test --test house"
    );
}
