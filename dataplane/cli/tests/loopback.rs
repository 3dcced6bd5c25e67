//! The programs themselves on loopback: three `braid-node` processes, `braid produce`, `braid consume` and `braid check`.
#![allow(unused_crate_dependencies, reason = "dev-dependencies are shared by all test programs")]

mod plane;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use plane::Plane;
use serde_json::Value;

fn braid(plane: &Plane, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
    command.args(args).envs(plane.client_env()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn words(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Waits for a clean end.
fn finished(child: Child) -> Output {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", words(&output));
    output
}

fn terminate(child: &Child) {
    let killed = Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert!(killed.success());
}

/// The verdict of `braid check`.
fn checked(plane: &Plane, files: &[PathBuf]) -> Value {
    let files: Vec<_> = files.iter().map(|file| file.to_str().unwrap()).collect();
    let output = braid(plane, &[&["check", "-o", "json"], &files[..]].concat()).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", words(&output)))
}

fn lines(file: &Path) -> usize {
    std::fs::read_to_string(file).map_or(0, |text| text.lines().count())
}

/// Waits until a record file has so many lines.
fn wait_for_lines(file: &Path, least: usize) {
    let started = Instant::now();
    while lines(file) < least {
        assert!(started.elapsed() < Duration::from_secs(60), "{} has {} of {least} lines", file.display(), lines(file));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn every_message_comes_through_once_and_in_order_across_a_split_a_rebucket_a_merge_and_members_that_come_and_go() {
    let mut plane = Plane::start();
    plane.create_topic();
    let (acked, early, late) = (plane.file("acked"), plane.file("early"), plane.file("late"));
    let produce = braid(
        &plane,
        &[
            "produce",
            "t",
            "-n",
            "n",
            "--rate",
            "2000",
            "--count",
            "16000",
            "--keys",
            "50",
            "--record",
            acked.to_str().unwrap(),
        ],
    );
    let consume = |name: &str, file: &Path| {
        let file = file.to_str().unwrap();
        let group = ["consume", "t", "-n", "n", "-s", "s", "--members", "3", "--work", "100us"];
        braid(&plane, &[&group[..], &["--name", name, "--idle", "4s", "--record", file]].concat()).spawn().unwrap()
    };
    let (first, mut produce) = (consume("early", &early), produce);
    let produce = produce.spawn().unwrap();
    wait_for_lines(&acked, 3_000);
    let second = consume("late", &late);
    plane.split(0);
    wait_for_lines(&acked, 6_000);
    plane.rebucket(1, 8);
    wait_for_lines(&acked, 9_000);
    terminate(&first);
    finished(first);
    plane.merge(3, 2);
    finished(produce);
    finished(second);
    let verdict = checked(&plane, &[acked, early, late]);
    assert_eq!(verdict["ok"], true, "{verdict:#}");
    assert_eq!(verdict["acked"], 16_000, "{verdict:#}");
    assert_eq!(verdict["delivered"], 16_000, "{verdict:#}");
    assert_eq!(verdict["keys"], 50, "{verdict:#}");
}

#[test]
fn a_killed_node_and_a_killed_consumer_lose_nothing() {
    let mut plane = Plane::start();
    plane.create_topic();
    plane.split(0);
    let (acked, killed, other) = (plane.file("acked"), plane.file("killed"), plane.file("other"));
    let args = [
        "produce",
        "t",
        "-n",
        "n",
        "--rate",
        "2000",
        "--count",
        "12000",
        "--keys",
        "40",
        "--record",
        acked.to_str().unwrap(),
    ];
    let produce = braid(&plane, &args).spawn().unwrap();
    let consume = |name: &str, file: &Path| {
        let file = file.to_str().unwrap();
        let args =
            ["consume", "t", "-n", "n", "-s", "s", "--members", "2", "--name", name, "--idle", "8s", "--record", file];
        braid(&plane, &args).spawn().unwrap()
    };
    let (mut first, second) = (consume("killed", &killed), consume("other", &other));
    wait_for_lines(&acked, 3_000);
    first.kill().unwrap();
    first.wait().unwrap();
    wait_for_lines(&acked, 5_000);
    plane.kill(1);
    std::thread::sleep(Duration::from_secs(1));
    plane.restart(1);
    finished(produce);
    finished(second);
    let verdict = checked(&plane, &[acked, killed, other]);
    assert_eq!(verdict["ok"], true, "{verdict:#}");
    assert_eq!(verdict["acked"], 12_000, "{verdict:#}");
}

#[test]
fn lines_from_stdin_come_out_as_they_went_in() {
    let mut plane = Plane::start();
    plane.create_topic();
    let mut produce = braid(&plane, &["produce", "t", "-n", "n"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = produce.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, b"k\tone\nk\ttwo\nk\tthree\n").unwrap();
    drop(stdin);
    finished(produce);
    let consume = braid(&plane, &["consume", "t", "-n", "n", "-s", "s", "--count", "3"]).spawn().unwrap();
    let output = finished(consume);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "k\tone\nk\ttwo\nk\tthree\n");
}

#[test]
fn a_topic_that_does_not_come_is_an_error_that_says_so() {
    let plane = Plane::start();
    let output = braid(&plane, &["produce", "none", "-n", "n", "--count", "1", "--wait", "1s"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = words(&output);
    assert!(said.contains("no node told a layout of topic `n/none` within 1000 ms, last: UNKNOWN_TOPIC"), "{said}");
}
