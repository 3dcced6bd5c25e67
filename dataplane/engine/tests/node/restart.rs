//! A store that is opened again is as it was, whatever record was the last to reach the disk.

use braid_engine::node::Bounds;
use braid_log::Store;
use braid_model::Micros;
use braid_wire::proto::request::Command;
use braid_wire::proto::response;
use braid_wire::{Frame, proto};

use crate::bench::{Bench, delivered, entry, layout, open_producer, segment, spec};

/// A life with everything in it.
fn lived() -> Bench {
    let mut bench = Bench::new("n-0");
    bench.root("n-0", 4);
    bench.tell(layout(1, vec![segment(0, (0, 65_535), 4, &[], "n-0", 1)], vec![spec("s")]));
    let producer = bench.producer(0, 1, 1);
    for sequence in 1..=5 {
        bench.publish(producer, entry(1, 1, sequence, 1, &format!("k{sequence}")));
    }
    bench.producer(0, 1, 3);
    let consumer = bench.attach(0, 5, 1, 4);
    let got = delivered(&bench.hear(consumer));
    for (no, i) in [(1, 0), (2, 2), (3, 1)] {
        bench.ack(consumer, no, &got[i]);
        bench.sync();
    }
    let child = segment(1, (0, 65_535), 8, &[0], "n-0", 2);
    bench.create(vec![child.clone()], vec![spec("s")]);
    bench.seal(0, std::slice::from_ref(&child));
    for (no, i) in [(4, 3), (5, 4)] {
        bench.ack(consumer, no, &got[i]);
    }
    bench.sync();
    bench.done(Command::Unsubscribe(proto::Unsubscribe { name: "none".into(), generation: 1 }));
    bench
}

/// Everything a bench can be asked, as one value.
fn picture(bench: &mut Bench) -> (proto::Inventory, Vec<Frame>, proto::CursorReport) {
    let fence = bench.fence;
    let inventory = match bench.command_at(fence, Command::Inspect(proto::Inspect {})) {
        response::Result::Inventory(inventory) => inventory,
        other => panic!("{other:?}"),
    };
    let mut answers = Vec::new();
    for epoch in [1, 3] {
        let channel = bench.client();
        bench.say(channel, open_producer(0, 1, epoch));
        bench.sync();
        answers.extend(bench.hear(channel));
    }
    let operator = bench.operator_hello();
    let cursor = operator
        .into_iter()
        .find_map(|frame| match frame {
            Frame::Report(report) => report.segments.into_iter().find(|s| s.segment == 0)?.cursors.pop(),
            _ => None,
        })
        .unwrap();
    (inventory, answers, cursor)
}

impl Bench {
    fn operator_hello(&mut self) -> Vec<Frame> {
        let channel = self.channel(braid_engine::Peer::Operator { name: "o".into() });
        self.say(channel, proto::Hello { version: 1, name: "o".into() });
        self.sync();
        self.hear(channel)
    }
}

#[test]
fn a_restart_keeps_everything() {
    let mut bench = lived();
    let before = picture(&mut bench);
    assert!(before.2.drained && before.2.backlog_messages == 0);
    let mut bench = bench.restart("n-0");
    assert_eq!(picture(&mut bench), before);
    // Recovery twice is recovery once.
    let mut bench = bench.restart("n-0");
    assert_eq!(picture(&mut bench), before);
    let hello = bench.operator_hello();
    let Some(Frame::HelloOk(ok)) = hello.first() else { panic!("{hello:?}") };
    assert_eq!((ok.start_counter, ok.highest_term), (3, 1));
}

#[test]
fn a_crash_after_any_record_opens_and_loses_nothing_that_was_acked() {
    let mut bench = lived();
    let records = bench.node.store().last().0;
    for kept in 0..=records {
        let disk = {
            // Nothing counts as synced, so any prefix may be what is found.
            let mut bare = braid_log::MemoryStore::default();
            let mut copied = Vec::new();
            let mut whole = bench.node.store().crash();
            whole.replay(&mut |_, record| copied.push(record)).unwrap();
            copied.into_iter().take(kept as usize).for_each(|record| drop(bare.append(record)));
            bare.cut(kept as usize)
        };
        let mut opened = Bench::open("n-0", disk, Micros(5_000_000_000), Bounds::default());
        opened.sync();
        assert!(opened.node.ready(), "after record {kept}");
        opened.fence = bench.fence;
        // The rest of the life can be lived again on it.
        let child = segment(1, (0, 65_535), 8, &[0], "n-0", 2);
        opened.create(vec![segment(0, (0, 65_535), 4, &[], "n-0", 1), child.clone()], vec![spec("s")]);
        let sealed = opened.seal(0, &[child]);
        assert!(sealed.end_offset <= 5);
        let consumer = opened.attach(0, 9, 1, 4);
        let got = delivered(&opened.hear(consumer));
        for (i, delivery) in got.iter().enumerate() {
            opened.ack(consumer, i as u64 + 1, delivery);
        }
        opened.sync();
        let hello = opened.operator_hello();
        let drained = hello.iter().any(|frame| match frame {
            Frame::Report(report) => report.segments.iter().any(|s| s.segment == 0 && s.cursors[0].drained),
            _ => false,
        });
        assert!(drained, "after record {kept}: {hello:?}");
    }
}
