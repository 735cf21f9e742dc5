//! The README shows what compiles.

#[test]
fn the_example_in_the_readme_is_the_one_that_is_built() {
    let readme = include_str!("../../../README.md");
    let example = include_str!("../../../examples/first.rs");
    assert!(readme.contains(example.trim()), "README.md and examples/first.rs differ");
    let lines = example.lines().count();
    assert!(lines <= 40, "{lines} lines are too many for a first example");
}
