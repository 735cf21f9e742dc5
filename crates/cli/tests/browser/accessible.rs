//! What an accessibility engine finds on the pages: nothing.

use serde_json::Value;

use super::driver::Browser;
use super::served::{CONFIG, serve, world};
use super::{fill, pages, url};

/// What the Web Content Accessibility Guidelines ask for, at the level that laws ask for.
const RULES: &str = r#"["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]"#;

/// What the engine finds wrong with the page that is open, each with the elements that it is about.
fn violations(browser: &Browser) -> Vec<String> {
    let engine = std::env::var("ONCEBOX_TEST_AXE").expect("cargo xtask test names the engine");
    browser.run(&std::fs::read_to_string(engine).unwrap());
    let found = browser.run_to_its_end(&format!(
        "axe.run(document, {{ runOnly: {RULES} }}).then((found) => done(found.violations), (error) => done(String(error)))"
    ));
    let found = found.as_array().unwrap_or_else(|| panic!("{found}"));
    let of = |one: &Value, name: &str| one[name].as_str().unwrap_or_default().to_owned();
    let told = |one: &Value| {
        let nodes = one["nodes"].as_array().into_iter().flatten();
        let nodes: Vec<String> = nodes
            .map(|node| format!("{}: {}", node["html"], of(node, "failureSummary").replace('\n', " ")))
            .collect();
        format!("{}: {}\n  {}", of(one, "id"), of(one, "help"), nodes.join("\n  "))
    };
    found.iter().map(told).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_accessibility_engine_finds_nothing_narrow_and_wide_light_and_dark() {
    let folder = world(CONFIG).await;
    let server = serve(&folder, &["run"]);
    fill(&folder, &server).await;
    let mut wrong = Vec::new();
    for dark in [false, true] {
        let browser = Browser::start(dark);
        for (name, path) in pages(&server) {
            for width in [400, 1_600] {
                browser.size(width, 900);
                browser.open(&url(&server, &path));
                browser.run("document.querySelectorAll('details').forEach((one) => one.open = true)");
                let found = violations(&browser);
                wrong.extend(found.iter().map(|one| format!("{name} at {width}, dark: {dark}: {one}")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The engine would find something: a picture without words, a text that is hardly seen.
#[tokio::test(flavor = "multi_thread")]
async fn the_engine_finds_what_is_wrong() {
    let folder = world(CONFIG).await;
    let server = serve(&folder, &["run"]);
    server.eventually("it answers", |s| s.get("/").status == 200);
    let browser = Browser::start(false);
    browser.open(&url(&server, "/health"));
    browser.run("document.querySelector('h1').style.setProperty('color', '#eeeeee')");
    browser.run("document.querySelector('main').append(document.createElement('img'))");
    let found = violations(&browser).join("\n");
    assert!(found.contains("color-contrast") && found.contains("image-alt"), "{found}");
}
