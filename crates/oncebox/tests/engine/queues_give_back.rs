//! A queue whose sender waits for the answer: what fails is given back, and nothing of it stays behind.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use oncebox::source::{Answer, Answered, Intake, OpenStream, Stream, Why};
use oncebox::sqlite::SqliteStore;
use oncebox::{Backoff, Inbox, Message, OnFailure, RetryPolicy, Selector, reject};
use sqlx::SqliteConnection;

use crate::fixture::{Fixture, eventually, record, record_effect};

fn inbox(fixture: &Fixture) -> Inbox<SqliteStore> {
    let retry = RetryPolicy { attempts: 2, backoff: Backoff::new(Duration::ZERO, Duration::ZERO) };
    fixture.inbox().id(Selector::Header("id".into())).retry(retry).on_failure(OnFailure::GiveBack)
}

async fn picky(tx: &mut SqliteConnection, message: &Message) -> oncebox::Result {
    record_effect(tx, message).await?;
    match message.id().as_str() {
        "rejected" => Err(reject("no such stock")),
        "failing" => Err("cannot".into()),
        "environment" => {
            Err(sqlx::query("INSERT INTO nowhere VALUES (1)").execute(tx).await.unwrap_err().into())
        }
        _ => Ok(()),
    }
}

/// A door: what is sent through it is answered.
struct Door {
    stream: Stream,
    answers: Arc<Mutex<Vec<Answered>>>,
}

impl Door {
    fn open(intake: &Intake) -> Self {
        Self::of(intake, OpenStream::queue("door"))
    }

    fn of(intake: &Intake, open: OpenStream) -> Self {
        let answers: Arc<Mutex<Vec<Answered>>> = Arc::default();
        let heard = Arc::clone(&answers);
        let on_answer = move |answered: &[Answered]| heard.lock().unwrap().extend_from_slice(answered);
        Self { stream: intake.open(open.on_answer(on_answer)), answers }
    }

    /// Sends a message and waits for its answer.
    async fn send(&self, number: i64, id: &str) -> Answer {
        assert!(self.stream.push(record(number, id, "k")));
        self.answer(number).await
    }

    async fn answer(&self, number: i64) -> Answer {
        let find = || self.answers.lock().unwrap().iter().find(|one| one.delivery == number).cloned();
        eventually("an answer", || find().is_some()).await;
        find().unwrap().answer
    }
}

/// A queue of a broker, which delivers what is given back again at once.
fn broker(wait: Duration) -> OpenStream {
    OpenStream::queue("broker").give_back_after(Backoff::new(wait, wait))
}

fn why(answer: &Answer) -> Option<(Why, &str)> {
    match answer {
        Answer::GivenBack(given_back) => Some((given_back.why, &given_back.reason)),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_is_given_back_with_its_reason_and_leaves_nothing_behind() {
    let fixture = Fixture::new().await;
    let door = Door::open(&inbox(&fixture).each(picky).intake());
    let rejected = door.send(0, "rejected").await;
    assert_eq!(why(&rejected), Some((Why::Rejected, "no such stock")));
    let failing = door.send(1, "failing").await;
    assert_eq!(why(&failing), Some((Why::Failed, "cannot")));
    let mut nameless = record(2, "", "k");
    nameless.headers = oncebox::message::Headers::new();
    assert!(door.stream.push(nameless));
    assert!(
        why(&door.answer(2).await).is_some_and(|(why, reason)| why == Why::Rejected && reason.contains("id"))
    );
    assert_eq!(door.send(3, "good").await, Answer::Applied);
    assert_eq!(door.send(4, "good").await, Answer::Duplicate);
    assert_eq!(fixture.effects().await, ["good"]);
    assert_eq!(fixture.texts("SELECT message_id FROM oncebox_inbox").await, ["good"]);
    assert!(fixture.dead().await.is_empty());
    door.stream.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_neighbour_costs_nobody_his_answer() {
    let fixture = Fixture::new().await;
    let door = Door::open(&inbox(&fixture).each(picky).intake());
    let ids = ["a", "rejected", "b", "failing", "c"];
    for (number, id) in (0..).zip(ids) {
        let mut keyless = record(number, id, "");
        keyless.key = None;
        assert!(door.stream.push(keyless));
    }
    let mut answers = Vec::new();
    for number in 0..5 {
        answers.push(why(&door.answer(number).await).map(|(why, _)| why));
    }
    assert_eq!(answers, [None, Some(Why::Rejected), None, Some(Why::Failed), None]);
    assert_eq!(fixture.effects().await.len(), 3);
    door.stream.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_begun_is_given_back_when_the_stream_closes() {
    let fixture = Fixture::new().await;
    let slow = async |_: &mut SqliteConnection, _: &Message| -> oncebox::Result {
        tokio::time::sleep(Duration::from_millis(200)).await;
        Ok(())
    };
    let bounds = oncebox::BatchBounds { messages: 1, bytes: 1 };
    let door = Door::open(&inbox(&fixture).batch_bounds(bounds).each(slow).intake());
    for number in 0..3 {
        assert!(door.stream.push(record(number, &format!("m{number}"), "k")));
    }
    door.stream.finish().await;
    assert!(!door.stream.push(record(3, "m3", "k")), "it takes no more");
    let answers = door.answers.lock().unwrap().clone();
    let closing =
        answers.iter().filter(|one| why(&one.answer).is_some_and(|(why, _)| why == Why::Closing)).count();
    assert_eq!(answers.len(), 3, "everybody hears something: {answers:?}");
    assert!(closing >= 1, "{answers:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_gets_back_what_failed_after_a_wait_and_others_go_on_meanwhile() {
    let (fixture, wait) = (Fixture::new().await, Duration::from_millis(400));
    let door = Door::of(&inbox(&fixture).each(picky).intake(), broker(wait));
    let began = Instant::now();
    assert!(door.stream.push(record(0, "rejected", "k")));
    assert_eq!(door.send(1, "good").await, Answer::Applied);
    let rejected = door.answer(0).await;
    assert_eq!(why(&rejected), Some((Why::Rejected, "no such stock")));
    // Up to a half is taken off at random.
    assert!(began.elapsed() >= wait / 2, "{:?}", began.elapsed());
    door.stream.finish().await;
    assert_eq!(door.answers.lock().unwrap().len(), 2, "each has one answer");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_to_be_given_back_is_not_settled_and_goes_back_when_the_stream_closes() {
    let fixture = Fixture::new().await;
    let worker = inbox(&fixture).each(picky);
    let door = Door::of(&worker.intake(), broker(Duration::from_secs(3_600)));
    assert!(door.stream.push(record(0, "rejected", "k")));
    assert_eq!(door.send(1, "good").await, Answer::Applied);
    // The broker holds nothing for us; two looks would be enough, were it not for the one that waits.
    for _ in 0..3 {
        door.stream.nothing_waits(oncebox::source::Instant::now());
    }
    door.stream.finish().await;
    let answers = door.answers.lock().unwrap().clone();
    assert_eq!(answers.len(), 2, "{answers:?}");
    assert_eq!(why(&door.answer(0).await).map(|(why, _)| why), Some(Why::Closing));
    let caught_up = "SELECT caught_up_at FROM oncebox_position WHERE caught_up_at IS NOT NULL";
    assert_eq!(fixture.texts(caught_up).await, [""; 0], "retention does not count from here");
}

/// A sender who waits is told that the database is away. A broker keeps the message, and each delivery counts.
#[tokio::test(flavor = "multi_thread")]
async fn a_broker_gets_nothing_back_because_the_database_is_away() {
    let fixture = Fixture::new().await;
    for waits in [true, false] {
        let tries = Arc::new(AtomicU32::new(0));
        let away = async move |tx: &mut SqliteConnection, message: &Message| -> oncebox::Result {
            record_effect(tx, message).await?;
            match tries.fetch_add(1, Ordering::SeqCst) {
                0..3 => Err(sqlx::Error::PoolTimedOut.into()),
                _ => Ok(()),
            }
        };
        let open = if waits { OpenStream::queue("door") } else { broker(Duration::ZERO) };
        let door = Door::of(&inbox(&fixture).each(away).intake(), open);
        let answer = door.send(0, if waits { "a" } else { "b" }).await;
        match waits {
            true => assert_eq!(why(&answer).map(|(why, _)| why), Some(Why::Unavailable)),
            false => assert_eq!(answer, Answer::Applied),
        }
        door.stream.finish().await;
    }
    assert_eq!(fixture.effects().await, ["b"]);
}
