//! A ledger survives the way through a status and its JSON, at every step of every operation.

use braid_crds::ScalableTopicStatus;
use braid_model::operation::{Confirmed, Given, Ledger, Next, Request, Seal, Start, Step, SubscriptionKind, next};
use braid_model::placement::{Host, Hosts};
use braid_model::{Buckets, Incarnation, Micros, SegmentId};

fn through_json(ledger: &Ledger) -> Ledger {
    let mut status = ScalableTopicStatus::default();
    status.keep(ledger);
    let json = serde_json::to_string(&status).unwrap();
    assert!(!json.contains("null"), "{json}");
    let back: ScalableTopicStatus = serde_json::from_str(&json).unwrap();
    assert_eq!(back, status);
    back.ledger().unwrap().unwrap()
}

fn hosts(connected: &[bool]) -> Hosts {
    let host = |(i, connected): (usize, &bool)| Host {
        store: format!("node-{i}").as_str().into(),
        connected: *connected,
        load: i as u64,
    };
    Hosts { stores: connected.iter().enumerate().map(host).collect(), ..Hosts::default() }
}

/// Carries `request` out, and checks the ledger on the way.
fn carry_out(ledger: &Ledger, request: &Request, hosts: &Hosts, now: u64) -> Ledger {
    let given = Given { hosts, ceiling: Buckets::new(1024).unwrap(), now: Micros(now) };
    let mut stored = ledger.begin(request, Some("0000-uid"), &given).unwrap();
    stored.last_requests.clear();
    assert_eq!(through_json(&stored), stored);
    let mut confirmed = Confirmed::under(stored.fence(1));
    loop {
        match next(&stored, &confirmed, hosts) {
            Next::Do { number, step: Step::Seal { segment, successors, .. } } => {
                confirmed.sealed(number, Seal { segment, successors });
            }
            Next::Do { number, .. } => confirmed.done(number),
            Next::Commit => break,
            other => panic!("{other:?}"),
        }
    }
    let mut after = stored.commit(&confirmed, Micros(now + 1)).unwrap();
    assert_eq!(through_json(&after), after);
    after.last_requests.clear();
    after
}

#[test]
fn a_ledger_survives_the_way_through_a_status() {
    let all = hosts(&[true, true, true]);
    let mut ledger = Ledger::new(Incarnation(0x0123_4567_89ab_cdef));
    assert_eq!(through_json(&ledger), ledger);
    let subscribe =
        |name: &str, start| Request::Subscribe { name: name.into(), kind: SubscriptionKind::Ordered, start };
    let rows = [
        (Request::Create { segments: 2, budget: 8 }, &all),
        (subscribe("billing", Start::Earliest), &all),
        (Request::Split { segment: SegmentId(0), into: 3 }, &all),
        (Request::Merge { a: SegmentId(2), b: SegmentId(3) }, &all),
        (Request::Rebucket { segments: vec![SegmentId(1), SegmentId(4)], buckets: Buckets::new(16).unwrap() }, &all),
        // One store owes its part.
        (subscribe("audit", Start::Latest), &hosts(&[true, false, true])),
        (Request::Unsubscribe { name: "billing".into() }, &hosts(&[true, true, false])),
        (Request::Delete, &all),
    ];
    for (i, (request, hosts)) in rows.iter().enumerate() {
        ledger = carry_out(&ledger, request, hosts, 1_764_551_514_000_000 + 10 * i as u64);
    }
}

#[test]
fn a_status_without_an_incarnation_has_no_ledger() {
    assert_eq!(ScalableTopicStatus::default().ledger(), Ok(None));
    let broken = ScalableTopicStatus { incarnation: Some("12".into()), ..ScalableTopicStatus::default() };
    assert_eq!(broken.ledger().unwrap_err().to_string(), "`status.incarnation` is `12`, it must be 16 hex digits");
}
