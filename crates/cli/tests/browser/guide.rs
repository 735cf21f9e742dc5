//! The pictures of the guide, always of the same messages. With `ONCEBOX_GUIDE_PICTURES=1` those in `docs/guides/pictures` are
//! made anew.

use std::path::Path;

use super::driver::Browser;
use super::served::{CONFIG, serve, world};
use super::{fill, pictures, url};

/// A page should not be heavy because of them.
const MOST_BYTES: usize = 150_000;

/// How many messages come in a round: a wave.
fn fresh(round: u64) -> u64 {
    4 + [0, 2, 5, 7, 6, 3][(round % 6) as usize]
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guide_has_pictures_of_the_pages() {
    let folder = world(CONFIG).await;
    let server = serve(&folder, &["run"]);
    fill(&folder, &server).await;
    // For the charts: each look that shows something new is a point in them.
    for round in 0..15_u64 {
        let known = 51 + (0..round).map(fresh).sum::<u64>();
        for nth in 0..fresh(round) {
            assert_eq!(server.deliver(&format!("later-{round}-{nth}"), "nut"), 202);
        }
        server.eventually("they are applied", |s| {
            s.json("/api/v1/overview")["consumers"][0]["applied"] == known + fresh(round)
        });
    }
    let number = server.json("/api/v1/dead-letters")["letters"][0]["number"].as_i64().unwrap();
    let browser = Browser::start(false);
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides");
    let text = std::fs::read_to_string(guide.join("dashboard.md")).unwrap();
    for (name, path) in [
        ("dashboard-overview", "/".to_owned()),
        ("dashboard-dead-letters", "/dead".to_owned()),
        ("dashboard-letter", format!("/dead/{number}?payload=show")),
    ] {
        let file = format!("{name}.png");
        assert!(text.contains(&format!("](pictures/{file})")), "the guide does not show {file}");
        let made = pictures().join(&file);
        browser.size(1_200, 900);
        browser.open(&url(&server, &path));
        browser.picture(&made, 1_200);
        let picture = std::fs::read(&made).unwrap();
        assert!(picture.len() < MOST_BYTES, "{file} has {} bytes", picture.len());
        if std::env::var_os("ONCEBOX_GUIDE_PICTURES").is_some() {
            std::fs::write(guide.join("pictures").join(&file), picture).unwrap();
        }
        assert!(guide.join("pictures").join(&file).exists(), "{file} is not beside the guide");
    }
}
