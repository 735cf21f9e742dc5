//! The stores are written alike: the same files, the same names of functions, as `ARCHITECTURE.md` says.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

type Fallible<T> = Result<T, Box<dyn Error>>;

const STORES: [&str; 4] = ["postgres", "sqlite", "mysql", "mongodb"];

/// How a handler from the configuration runs is where databases differ most, so each store has its own files for that.
const FREE: [&str; 2] = ["sql_handler", "operations"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources_of(krate: &str) -> PathBuf {
    repository().join("crates").join(krate).join("src")
}

/// The rows of the tables in the section "Inside a store" that have this head: for each cell the words in backticks.
fn table(head: &str) -> Fallible<Vec<Vec<Vec<String>>>> {
    let text = fs::read_to_string(repository().join("ARCHITECTURE.md"))?;
    let rows = text.lines().skip_while(|line| *line != head).skip(2).take_while(|line| line.starts_with('|'));
    let words = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    let rows: Vec<_> = rows.map(|row| row.trim_matches('|').split('|').map(words).collect()).collect();
    if rows.is_empty() { Err(format!("ARCHITECTURE.md has no table {head}").into()) } else { Ok(rows) }
}

/// A trait method, and where each store has it.
struct Place {
    of: String,
    method: String,
    file: String,
}

/// Each trait with the file of its impl, and each method with its own. A first cell that is empty means the trait of the row
/// above.
fn places() -> Fallible<(BTreeMap<String, String>, Vec<Place>)> {
    let (mut impls, mut places, mut of) = (BTreeMap::new(), Vec::new(), String::new());
    for row in table("| trait, in | method | file |")? {
        let [first, methods, file] = row.as_slice() else { return Err("a row without three cells".into()) };
        if let [name, impl_file] = first.as_slice() {
            of.clone_from(name);
            impls.insert(name.clone(), impl_file.clone());
        }
        let [file] = file.as_slice() else { return Err(format!("{methods:?} are in no file").into()) };
        places.extend(methods.iter().cloned().map(|method| Place {
            of: of.clone(),
            method,
            file: file.clone(),
        }));
    }
    Ok((impls, places))
}

#[test]
fn every_method_is_where_the_table_says() -> Fallible<()> {
    let (impls, places) = places()?;
    for store in STORES {
        for (of, file) in &impls {
            let text = fs::read_to_string(sources_of(store).join(file))?;
            assert!(text.contains(&format!("\nimpl {of} for ")), "{store}: {file} has no impl of {of}");
        }
        for Place { method, file, .. } in &places {
            let text = fs::read_to_string(sources_of(store).join(file))?;
            assert!(text.contains(&format!("fn {method}(")), "{store}: {file} has no function {method}");
        }
    }
    Ok(())
}

#[test]
fn the_table_has_every_method() -> Fallible<()> {
    let (mut wanted, mut known) = (BTreeSet::new(), BTreeSet::new());
    for file in files(&sources_of("core").join("store"))? {
        let text = fs::read_to_string(sources_of("core").join("store").join(file))?;
        let mut of = None;
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("pub trait ") {
                of = rest.split(':').next();
            } else if line == "}" {
                of = None;
            }
            let method = line.strip_prefix("    fn ").and_then(|rest| rest.split('(').next());
            if let (Some(of), Some(method)) = (of, method) {
                let method = (of.to_owned(), method.to_owned());
                // One with a body need not be in the stores.
                if !line.ends_with('{') {
                    wanted.insert(method.clone());
                }
                known.insert(method);
            }
        }
    }
    let said: BTreeSet<_> = places()?.1.into_iter().map(|place| (place.of, place.method)).collect();
    assert_eq!(
        wanted.difference(&said).collect::<Vec<_>>(),
        Vec::<&(String, String)>::new(),
        "not in the table"
    );
    assert_eq!(said.difference(&known).collect::<Vec<_>>(), Vec::<&(String, String)>::new(), "in no trait");
    Ok(())
}

#[test]
fn the_stores_have_the_same_files() -> Fallible<()> {
    let mut own: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for row in table("| only in | file | because |")? {
        let [stores, files, _] = row.as_slice() else { return Err("a row without three cells".into()) };
        for store in stores {
            own.entry(store.clone()).or_default().extend(files.iter().cloned());
        }
    }
    let mut common = BTreeMap::new();
    for store in STORES {
        let mut shared = files(&sources_of(store))?;
        shared.retain(|file| !FREE.iter().any(|free| file.starts_with(free)));
        for file in own.get(&format!("crates/{store}")).into_iter().flatten() {
            assert!(shared.remove(file), "{store} has no {file}");
        }
        common.insert(store, shared);
    }
    for store in STORES {
        assert_eq!(common[store], common[STORES[0]], "{store} against {}", STORES[0]);
    }
    Ok(())
}

/// The Rust files under a folder, by their paths in it.
fn files(folder: &Path) -> Fallible<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() {
            found.extend(files(&entry.path())?.into_iter().map(|file| format!("{name}/{file}")));
        } else if name.ends_with(".rs") {
            found.insert(name);
        }
    }
    Ok(found)
}
