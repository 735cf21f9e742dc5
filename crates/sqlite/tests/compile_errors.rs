//! The commonest mistakes with handlers, and what the compiler says about them.

#[test]
fn the_compiler_says_what_is_wrong() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/right.rs");
    cases.compile_fail("tests/ui/wrong_*.rs");
}
