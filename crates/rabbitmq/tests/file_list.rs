//! The crate's page says what each file does: all of them, and no others.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn files(folder: &Path, prefix: &str, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if path.is_dir() {
            files(&path, &format!("{prefix}{name}/"), found);
        } else if name != "lib.rs" && !name.ends_with("_tests.rs") {
            found.insert(format!("{prefix}{name}"));
        }
    }
}

#[test]
fn the_page_lists_every_file() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut there = BTreeSet::new();
    files(&src, "", &mut there);
    let page = fs::read_to_string(src.join("lib.rs")).expect("the page");
    let rows = page.lines().filter(|line| line.starts_with("//! | `"));
    let words = rows.flat_map(|row| row.split('`')).filter(|word| word.ends_with(".rs"));
    let listed: BTreeSet<String> = words.map(str::to_owned).collect();
    assert_eq!(listed, there);
}
