use proptest::prelude::*;

use super::*;

const MIN: Duration = Duration::from_millis(100);
const MAX: Duration = Duration::from_secs(8);
const TIMEOUT: Duration = Duration::from_secs(1);

fn breaker() -> Breaker {
    Breaker::new(Backoff::new(MIN, MAX), TIMEOUT)
}

fn failure(event: u128, probe: bool) -> Failure {
    Failure { event: Uuid::from_u128(event), probe, reason: "404 Not Found".into(), asked: None }
}

fn asked(event: u128, pause: Duration) -> Failure {
    Failure { asked: Some(pause), ..failure(event, false) }
}

/// One that five events have opened, and when.
fn opened() -> (Breaker, Instant) {
    let (mut breaker, now) = (breaker(), Instant::now());
    for event in 0..4 {
        assert_eq!(breaker.failed(now, failure(event, false)), Blame::Event);
    }
    assert!(matches!(breaker.failed(now, failure(4, false)), Blame::Receiver { .. }));
    (breaker, now)
}

#[test]
fn different_events_that_fail_in_a_row_open_it_and_one_that_fails_often_does_not() {
    let (mut breaker, now) = (breaker(), Instant::now());
    for nth in 0..100 {
        assert_eq!(breaker.failed(now, failure(1, false)), Blame::Event, "{nth}");
        assert_eq!(breaker.admit(now), Admission::Send);
    }
    assert!(matches!(breaker.standing(now), Standing::Failing { .. }), "it is said all the same");
    for event in 2..5 {
        assert_eq!(breaker.failed(now, failure(event, false)), Blame::Event);
    }
    assert!(matches!(breaker.failed(now, failure(5, false)), Blame::Receiver { after } if after >= MIN));
    assert_eq!(breaker.admit(now), Admission::Wait);
    assert_eq!(breaker.standing(now), Standing::Away { reason: "404 Not Found".into() });
}

#[test]
fn a_delivery_in_between_begins_the_count_anew() {
    let (mut breaker, now) = (breaker(), Instant::now());
    for event in 0..1000 {
        assert_eq!(breaker.failed(now, failure(event, false)), Blame::Event);
        if event % 4 == 3 {
            assert_eq!(breaker.delivered(now, false), None, "there was no trouble to speak of");
            assert_eq!(breaker.standing(now), Standing::Ready);
        }
    }
}

#[test]
fn one_request_at_a_time_tries_it_and_the_pauses_grow() {
    let (mut breaker, mut now) = opened();
    let mut pauses = Vec::new();
    for event in 10..20 {
        let begin = now;
        while breaker.admit(now) == Admission::Wait {
            assert!(matches!(breaker.standing(now), Standing::Away { .. }));
            now += Duration::from_millis(5);
        }
        pauses.push(now - begin);
        assert!(matches!(breaker.standing(now), Standing::Away { .. }), "one is under way");
        assert_eq!(breaker.admit(now), Admission::Wait);
        let Blame::Receiver { after } = breaker.failed(now, failure(event, true)) else { unreachable!() };
        assert_eq!(breaker.admit(now + after - MIN - Duration::from_millis(1)), Admission::Wait);
    }
    assert!(pauses[0] <= MIN + Duration::from_millis(5) && pauses[9] >= MAX / 2, "{pauses:?}");
    assert!(pauses.iter().all(|pause| *pause <= MAX + Duration::from_millis(5)), "{pauses:?}");
}

#[test]
fn a_delivery_closes_it_and_says_what_is_over() {
    let (mut breaker, now) = opened();
    let later = now + MAX;
    assert!(matches!(breaker.standing(later), Standing::Probe { .. }));
    assert_eq!(breaker.admit(later), Admission::Probe);
    assert_eq!(breaker.delivered(later, true), Some(Recovery { after: MAX, failures: 5 }));
    assert_eq!((breaker.admit(later), breaker.standing(later)), (Admission::Send, Standing::Ready));
    assert_eq!(breaker.failed(later, failure(1, false)), Blame::Event, "the count begins anew");
}

#[test]
fn a_request_that_nobody_waited_for_is_made_up_for_at_once() {
    let (mut breaker, now) = opened();
    let later = now + MAX;
    assert_eq!(breaker.admit(later), Admission::Probe);
    breaker.probe_dropped();
    assert_eq!(breaker.admit(later), Admission::Probe);
    assert_eq!(breaker.delivered(later, true).map(|recovery| recovery.failures), Some(5));
    breaker.probe_dropped();
    assert_eq!(breaker.admit(later), Admission::Send, "that one was not under way");
}

#[test]
fn a_pause_that_was_asked_for_holds_at_once_and_is_kept() {
    let (mut breaker, now) = (breaker(), Instant::now());
    let pause = Duration::from_secs(30);
    assert_eq!(breaker.failed(now, asked(1, pause)), Blame::Receiver { after: pause + MIN });
    // Late answers change nothing, and no shorter wish.
    assert_eq!(breaker.delivered(now, false), None);
    assert_eq!(breaker.failed(now, asked(2, Duration::from_secs(1))), Blame::Receiver { after: pause + MIN });
    assert!(matches!(breaker.failed(now, failure(3, false)), Blame::Receiver { .. }));
    assert_eq!(breaker.admit(now + pause - MIN), Admission::Wait);
    assert_eq!(breaker.admit(now + pause), Admission::Probe);
    assert!(breaker.delivered(now + pause, true).is_some());
    assert_eq!(breaker.admit(now + pause), Admission::Send);
}

#[test]
fn who_refuses_everything_is_not_believed_for_long() {
    let (mut breaker, mut now) = (breaker(), Instant::now());
    for event in 0..10 {
        assert_eq!(breaker.refused(now, failure(event, false)), (None, None), "{event}");
        assert_eq!(breaker.standing(now), Standing::Ready);
    }
    for event in 10..100 {
        let (blame, recovery) = breaker.refused(now, failure(event, event > 10));
        assert!(matches!(blame, Some(Blame::Receiver { .. })) && recovery.is_none(), "{event}: {blame:?}");
        now += MAX;
        assert_eq!(breaker.admit(now), Admission::Probe, "{event}");
    }
    assert!(breaker.delivered(now, true).is_some());
    assert_eq!(breaker.refused(now, failure(100, false)), (None, None), "one among others is wrong itself");
}

#[test]
fn a_receiver_that_refuses_an_event_is_there() {
    let (mut breaker, now) = opened();
    let later = now + MAX;
    assert_eq!(breaker.admit(later), Admission::Probe);
    let (blame, recovery) = breaker.refused(later, failure(9, true));
    assert_eq!((blame, recovery.map(|recovery| recovery.failures)), (None, Some(5)));
    assert_eq!(breaker.admit(later), Admission::Send);
}

#[test]
fn trouble_that_nobody_meets_any_more_is_forgotten() {
    let (mut breaker, now) = opened();
    let long_after = now + MAX * 4 + TIMEOUT + Duration::from_secs(11);
    assert_eq!(breaker.standing(long_after), Standing::Ready, "its events were dropped");
    assert_eq!(breaker.admit(long_after), Admission::Probe, "and yet it is asked first");
}

#[derive(Debug, Clone)]
enum Step {
    Pass(u64),
    Send,
    Deliver(usize),
    Fail(usize),
    Refuse(usize),
    Ask(usize, u64),
    Drop(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1..5_000_u64).prop_map(Step::Pass),
        Just(Step::Send),
        Just(Step::Send),
        (0..8_usize).prop_map(Step::Deliver),
        (0..8_usize).prop_map(Step::Fail),
        (0..8_usize).prop_map(Step::Refuse),
        ((0..8_usize), (1..20_u64)).prop_map(|(at, seconds)| Step::Ask(at, seconds)),
        (0..8_usize).prop_map(Step::Drop),
    ]
}

proptest! {
    /// Whatever happens: at most one request tries it, nothing is sent during a pause, and no pause is longer than the longest.
    #[test]
    fn it_holds_back_and_never_for_ever(steps in proptest::collection::vec(step(), 1..200)) {
        let mut breaker = breaker();
        let mut now = Instant::now();
        let mut under_way: Vec<(u128, bool)> = Vec::new();
        let mut next = 0;
        let mut asked_until = now;
        for step in steps {
            match step {
                Step::Pass(ms) => now += Duration::from_millis(ms),
                Step::Send => {
                    let standing = breaker.standing(now);
                    match breaker.admit(now) {
                        Admission::Wait => {
                            let takes = matches!(standing, Standing::Probe { .. } | Standing::Failing { .. });
                            prop_assert!(!takes, "{standing:?}");
                        }
                        admission => {
                            let away = matches!(standing, Standing::Away { .. });
                            prop_assert!(now >= asked_until && !away, "{admission:?} {standing:?}");
                            under_way.push((next, admission == Admission::Probe));
                            next += 1;
                        }
                    }
                    prop_assert!(under_way.iter().filter(|(_, probe)| *probe).count() <= 1);
                }
                Step::Deliver(at) if at < under_way.len() => {
                    let (_, probe) = under_way.remove(at);
                    breaker.delivered(now, probe);
                    prop_assert!(!breaker.is_open() || now < asked_until);
                }
                Step::Fail(at) if at < under_way.len() => {
                    let (event, probe) = under_way.remove(at);
                    if let Blame::Receiver { after } = breaker.failed(now, failure(event, probe)) {
                        prop_assert!(after <= MAX.max(asked_until.saturating_duration_since(now)) + MIN);
                    }
                }
                Step::Refuse(at) if at < under_way.len() => {
                    let (event, probe) = under_way.remove(at);
                    breaker.refused(now, failure(event, probe));
                }
                Step::Ask(at, seconds) if at < under_way.len() => {
                    let (event, probe) = under_way.remove(at);
                    let pause = Duration::from_secs(seconds);
                    breaker.failed(now, Failure { probe, ..asked(event, pause) });
                    asked_until = asked_until.max(now + pause);
                }
                Step::Drop(at) if at < under_way.len() => {
                    let (_, probe) = under_way.remove(at);
                    if probe {
                        breaker.probe_dropped();
                    }
                }
                _ => {}
            }
        }
        // Once nothing is under way, somebody may send again when the longest pause is over.
        for (event, probe) in under_way {
            breaker.failed(now, failure(event, probe));
        }
        now = now.max(asked_until) + MAX;
        prop_assert_ne!(breaker.admit(now), Admission::Wait);
    }
}
