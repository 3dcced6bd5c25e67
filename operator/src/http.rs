//! Health and figures over HTTP: `/livez` (the watches are answered and the laps come round), `/readyz` (the caches are filled;
//! says nothing about leading), `/metrics` (Prometheus text). It knows when things happened, never what they were about.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A watch that has failed for this long without a break makes the process unhealthy.
const WATCH_FAILS: Duration = Duration::from_secs(300);
/// Errors further apart than this are not one failure. A watch that recovers may say nothing for hours, so only the absence of
/// errors shows it; one that does not recover is retried at least this often, its backoff and the connect timeout together.
const WATCH_RETRIES: Duration = Duration::from_secs(120);
/// A lap that has not ended after this long never will: each of its waits for a node has a deadline of seconds.
const LAP_STUCK: Duration = Duration::from_secs(300);

/// Why the process should be started anew.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Sick {
    #[error("the watch of `{kind}` has failed for {} s, at most {} s are tolerated", .since.as_secs(), WATCH_FAILS.as_secs())]
    Watch { kind: String, since: Duration },
    #[error("a lap has been under way for {} s, at most {} s are tolerated", .since.as_secs(), LAP_STUCK.as_secs())]
    Lap { since: Duration },
}

/// Errors of one watch with no good answer between them.
#[derive(Clone, Copy, Debug)]
struct Streak {
    first: Instant,
    last: Instant,
}

#[derive(Debug, Default)]
struct State {
    failing: BTreeMap<String, Streak>,
    laps: BTreeMap<u64, Instant>,
    laps_begun: u64,
    synced: bool,
}

impl State {
    fn watch_answered(&mut self, kind: &str, good: bool, now: Instant) {
        if good {
            self.failing.remove(kind);
            return;
        }
        let streak = self.failing.entry(kind.to_owned()).or_insert(Streak { first: now, last: now });
        if now.duration_since(streak.last) > WATCH_RETRIES {
            streak.first = now;
        }
        streak.last = now;
    }

    fn lap_begun(&mut self, now: Instant) -> u64 {
        self.laps_begun += 1;
        self.laps.insert(self.laps_begun, now);
        self.laps_begun
    }

    /// The first reason that holds, watches before laps.
    fn sick(&self, now: Instant) -> Option<Sick> {
        let watch = self.failing.iter().find_map(|(kind, streak)| {
            let since = now.duration_since(streak.first);
            let goes_on = now.duration_since(streak.last) <= WATCH_RETRIES;
            (goes_on && since > WATCH_FAILS).then(|| Sick::Watch { kind: kind.clone(), since })
        });
        let oldest = self.laps.values().min().map(|begun| now.duration_since(*begun));
        watch.or_else(|| oldest.filter(|since| *since > LAP_STUCK).map(|since| Sick::Lap { since }))
    }
}

/// What `/livez` and `/readyz` are judged by. Shared by every watch and lap; locks are never held across an await.
#[derive(Debug, Default)]
pub(crate) struct Health {
    state: Mutex<State>,
}

impl Health {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The watch of that kind yielded an event, or an error.
    pub(crate) fn watch_answered(&self, kind: &str, good: bool) {
        self.state().watch_answered(kind, good, Instant::now());
    }

    /// Every cache was filled once.
    pub(crate) fn synced(&self) {
        self.state().synced = true;
    }

    /// A lap begins; it ends when what is returned is dropped, also if the lap is cancelled.
    pub(crate) fn lap(&self) -> Lap<'_> {
        Lap { number: self.state().lap_begun(Instant::now()), health: self }
    }

    /// Why the process should be started anew, if it should.
    pub(crate) fn sick(&self) -> Option<Sick> {
        self.state().sick(Instant::now())
    }

    fn is_synced(&self) -> bool {
        self.state().synced
    }
}

/// A lap under way.
#[derive(Debug)]
#[must_use = "the lap ends when this is dropped"]
pub(crate) struct Lap<'a> {
    health: &'a Health,
    number: u64,
}

impl Drop for Lap<'_> {
    fn drop(&mut self) {
        self.health.state().laps.remove(&self.number);
    }
}

/// Serves until stopped. `figures` returns the text of `/metrics`.
pub(crate) async fn serve<F>(
    listener: TcpListener,
    health: Arc<Health>,
    figures: F,
    stop: CancellationToken,
) -> io::Result<()>
where
    F: Fn() -> String + Clone + Send + Sync + 'static,
{
    const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
    let ready = Arc::clone(&health);
    let livez = move || async move {
        match health.sick() {
            None => (StatusCode::OK, "ok\n".to_owned()),
            Some(sick) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{sick}\n")),
        }
    };
    let readyz = move || async move {
        if ready.is_synced() {
            (StatusCode::OK, "ok\n")
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, "the caches are not filled yet\n")
        }
    };
    let router = Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(move || async move { ([(header::CONTENT_TYPE, PROMETHEUS)], figures()) }));
    axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;
    use tokio::task::JoinSet;

    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_watch_is_sick_only_while_it_fails_without_a_break() {
        let begun = Instant::now();
        // Answers of one watch at these seconds, and how long it is said to have failed at the second asked about.
        let check = |answers: &[(u64, bool)], asked: u64, expected: Option<u64>| {
            let mut state = State::default();
            for (at, good) in answers {
                state.watch_answered("Pod", *good, begun + s(*at));
            }
            let expected = expected.map(|since| Sick::Watch { kind: "Pod".to_owned(), since: s(since) });
            assert_eq!(state.sick(begun + s(asked)), expected, "{answers:?} at {asked}");
        };
        let failing = [(0, false), (60, false), (120, false), (180, false), (240, false), (300, false)];
        check(&[], 10_000, None);
        check(&[(0, true)], 10_000, None); // a quiet kind is not a sick one
        check(&failing, 300, None);
        check(&failing, 301, Some(301));
        check(&failing, 420, Some(420));
        check(&failing, 421, None); // no retry failed since: it watches again, and nothing has changed
        check(&[(0, false)], 301, None); // one error, and a recovery that yields no event
        check(&[&failing[..], &[(310, true)]].concat(), 311, None);
        check(&[&failing[..], &[(310, true), (320, false)]].concat(), 330, None);
        check(&[&failing[..], &[(421, false)]].concat(), 430, None); // another failure
        check(&[&failing[..], &[(420, false)]].concat(), 430, Some(430)); // still the same
    }

    #[test]
    fn one_watch_does_not_heal_another() {
        let begun = Instant::now();
        let mut state = State::default();
        for at in (0..=360).step_by(60) {
            state.watch_answered("Subscription", false, begun + s(at));
            state.watch_answered("Pod", true, begun + s(at));
        }
        let expected = Sick::Watch { kind: "Subscription".to_owned(), since: s(360) };
        assert_eq!(state.sick(begun + s(360)), Some(expected));
    }

    #[test]
    fn the_oldest_lap_under_way_decides() {
        let begun = Instant::now();
        let mut state = State::default();
        let first = state.lap_begun(begun);
        state.lap_begun(begun + s(100));
        assert_eq!(state.sick(begun + s(300)), None);
        assert_eq!(state.sick(begun + s(301)), Some(Sick::Lap { since: s(301) }));
        state.laps.remove(&first);
        assert_eq!(state.sick(begun + s(400)), None);
        assert_eq!(state.sick(begun + s(401)), Some(Sick::Lap { since: s(301) }));
    }

    #[test]
    fn a_lap_ends_when_it_is_dropped() {
        let health = Health::default();
        let (first, second) = (health.lap(), health.lap());
        assert_eq!(health.state().laps.len(), 2);
        drop(first);
        assert_eq!(health.state().laps.keys().copied().collect::<Vec<_>>(), [2]);
        drop(second);
        assert_eq!(health.state().laps.len(), 0);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_bound() {
        let watch = Sick::Watch { kind: "Pod".to_owned(), since: s(301) };
        assert_eq!(watch.to_string(), "the watch of `Pod` has failed for 301 s, at most 300 s are tolerated");
        let lap = Sick::Lap { since: s(302) };
        assert_eq!(lap.to_string(), "a lap has been under way for 302 s, at most 300 s are tolerated");
    }

    /// The status line and the body.
    async fn fetch(from: std::net::SocketAddr, path: &str) -> (String, String) {
        let mut stream = TcpStream::connect(from).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.lines().next().unwrap().to_owned(), body.to_owned())
    }

    #[tokio::test]
    async fn health_and_figures_are_served_until_stopped() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let (health, stop) = (Arc::new(Health::default()), CancellationToken::new());
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(listener, Arc::clone(&health), || "figure 7\n".to_owned(), stop.clone()));
        let check = async |path: &str, status: &str, body: &str| {
            assert_eq!(fetch(at, path).await, (format!("HTTP/1.1 {status}"), body.to_owned()), "{path}");
        };
        check("/livez", "200 OK", "ok\n").await;
        check("/readyz", "503 Service Unavailable", "the caches are not filled yet\n").await;
        health.synced();
        check("/readyz", "200 OK", "ok\n").await;
        check("/metrics", "200 OK", "figure 7\n").await;
        check("/other", "404 Not Found", "").await;
        let long_ago = Instant::now().checked_sub(s(400)).unwrap();
        health.state().lap_begun(long_ago);
        let (status, body) = fetch(at, "/livez").await;
        assert_eq!(status, "HTTP/1.1 500 Internal Server Error");
        assert!(body.starts_with("a lap has been under way for 40"), "{body}");
        stop.cancel();
        tasks.join_next().await.unwrap().unwrap().unwrap();
        assert!(TcpStream::connect(at).await.is_err());
    }
}
