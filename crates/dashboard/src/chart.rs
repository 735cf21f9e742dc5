//! Small charts, drawn on the server: SVG without styles of its own, so that the page's colours are theirs too.

use maud::{Markup, html};

use crate::history::Line;

const WIDTH: f64 = 320.0;
const HEIGHT: f64 = 56.0;
/// Two samples further apart than this are not joined.
const GAP_MS: i64 = 45_000;

/// An area, and perhaps a second line over it on the same scale. `label` says what is seen, for those who do not see it.
pub(crate) fn chart(label: &str, window: (i64, i64), area: &Line, over: Option<&Line>) -> Markup {
    let values = area.iter().chain(over.into_iter().flatten()).map(|(_, value)| *value);
    let top = values.fold(0.0, f64::max);
    let scale = Scale { window, top: if top > 0.0 { top } else { 1.0 } };
    html! {
        svg.chart viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" role="img" aria-label=(label) {
            title { (label) }
            path.chart-base d=(format!("M0 {:.1}H{WIDTH}", HEIGHT - 0.5)) {}
            @for piece in pieces(area) {
                path.chart-area d=(scale.area(piece)) {}
                path.chart-line d=(scale.line(piece)) {}
            }
            @for piece in over.map(|over| pieces(over)).unwrap_or_default() {
                path.chart-over d=(scale.line(piece)) {}
            }
        }
    }
}

struct Scale {
    window: (i64, i64),
    top: f64,
}

impl Scale {
    fn at(&self, (ms, value): (i64, f64)) -> (f64, f64) {
        let (from, to) = self.window;
        let along = (ms - from) as f64 / (to - from).max(1) as f64;
        // Room for half the width of the line.
        (along.clamp(0.0, 1.0) * WIDTH, HEIGHT - 1.0 - (value / self.top) * (HEIGHT - 4.0))
    }

    fn line(&self, points: &[(i64, f64)]) -> String {
        let mut path = String::with_capacity(points.len() * 12);
        for (nth, point) in points.iter().enumerate() {
            let (x, y) = self.at(*point);
            path.push_str(&format!("{}{x:.1} {y:.1}", if nth == 0 { "M" } else { "L" }));
        }
        path
    }

    fn area(&self, points: &[(i64, f64)]) -> String {
        let (Some(first), Some(last)) = (points.first(), points.last()) else { return String::new() };
        let (from, to) = (self.at(*first).0, self.at(*last).0);
        format!("{}L{to:.1} {HEIGHT}L{from:.1} {HEIGHT}Z", self.line(points))
    }
}

/// What belongs together: a process that slept, or a database that was away, leaves a gap.
fn pieces(line: &Line) -> Vec<&[(i64, f64)]> {
    line.chunk_by(|a, b| b.0 - a.0 <= GAP_MS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_not_drawn_over() {
        let line = vec![(0, 1.0), (10_000, 2.0), (100_000, 1.0), (110_000, 0.0)];
        let drawn = chart("applied per second", (0, 110_000), &line, None).into_string();
        assert_eq!(drawn.matches("chart-line").count(), 2, "{drawn}");
        assert!(drawn.contains("aria-label=\"applied per second\"") && !drawn.contains("style"), "{drawn}");
        assert!(drawn.contains("M0.0 29.0L29.1 3.0"), "{drawn}");
    }

    #[test]
    fn nothing_and_zero_are_drawn_too() {
        for line in [vec![], vec![(0, 0.0)]] {
            let drawn = chart("x", (0, 1), &line, Some(&line)).into_string();
            assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
        }
    }
}
