//! A source: follows a file, one message for each line. The number of a line is its offset.

use std::path::{Path, PathBuf};
use std::time::Duration;

use oncebox::message::Record;
use oncebox::source::{CancellationToken, Instant, Intake, OpenStream, Source, Stream};

/// How often the file is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The lines of a file that others append to. Nobody may change or remove a line: then numbers would mean other lines.
pub(crate) struct Lines {
    path: PathBuf,
}

impl Lines {
    pub(crate) fn of(path: impl AsRef<Path>) -> Self {
        Self { path: path.as_ref().to_owned() }
    }

    /// All complete lines. What does not end with a line break yet is still being written.
    fn read(&self) -> std::io::Result<Vec<String>> {
        let text = std::fs::read_to_string(&self.path)?;
        let complete = text.rfind('\n').map_or("", |end| &text[..end]);
        Ok(complete.lines().map(str::to_owned).collect())
    }

    async fn follow(&self, intake: &Intake, stream: &Stream) -> oncebox::Result {
        // Where the last process left off, unless the file has become shorter than that: then this is an error.
        let mut next = intake.begin(stream, 0..offset(self.read()?.len())).await?.read_from;
        loop {
            let asked = Instant::now();
            let lines = self.read()?;
            stream.log_ends_at(offset(lines.len()), asked);
            for line in lines.into_iter().skip(usize::try_from(next)?) {
                let mut record = Record::at(stream.topic(), stream.partition(), next);
                record.payload = Some(line.into());
                stream.send(record).await;
                next += 1;
            }
            // Halted, or taken over by another process. The error is reported, and this source is started again later.
            if let Some(reason) = stream.stopped() {
                return Err(reason.into());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

impl Source for Lines {
    async fn run(&self, intake: Intake, stop: CancellationToken) -> oncebox::Result {
        let topic = self.path.file_name().unwrap_or_default().to_string_lossy();
        let stream = intake.open(OpenStream::new(&*topic, 0));
        let followed = tokio::select! {
            followed = self.follow(&intake, &stream) => followed,
            () = stop.cancelled() => Ok(()),
        };
        // Whatever happened: end what is in flight and give the position back.
        stream.finish().await;
        followed
    }
}

fn offset(line: usize) -> i64 {
    i64::try_from(line).unwrap_or(i64::MAX)
}
