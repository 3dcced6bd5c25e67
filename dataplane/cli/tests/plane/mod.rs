//! A data plane of three processes in a folder of its own, and an operator's hand that only commands.

mod certificates;

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use braid_link::{Alpn, Channel, Endpoint, Identity};
use braid_wire::proto::{self, request, response};
use braid_wire::{Frame, VERSION};
use tokio::runtime::Runtime;

const NODES: usize = 3;
const INCARNATION: u64 = 0xb1;

pub(crate) struct Plane {
    folder: PathBuf,
    ports: Vec<(u16, u16)>,
    processes: Vec<Option<Child>>,
    runtime: Runtime,
    operator: Endpoint,
    op: u64,
    epoch: u64,
    tells: u64,
    segments: BTreeMap<u64, proto::Segment>,
}

fn store(node: usize) -> String {
    format!("braid-node-{node}")
}

/// The node's program, built once per test run beside this one.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let built = Command::new(env!("CARGO")).args(["build", "-q", "-p", "braid-node"]).status().unwrap();
        assert!(built.success());
        Path::new(env!("CARGO_BIN_EXE_braid")).with_file_name("braid-node")
    })
}

fn free_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Plane {
    pub(crate) fn start() -> Self {
        static NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("plane-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        certificates::write(&folder, &(0..NODES).map(store).collect::<Vec<_>>());
        let runtime = Runtime::new().unwrap();
        let identity =
            Identity::load(&folder.join("ca.crt"), &folder.join("operator.crt"), &folder.join("operator.key"));
        let operator = runtime.block_on(async { Endpoint::client(identity.unwrap()).unwrap() });
        let mut plane = Self {
            folder,
            ports: (0..NODES).map(|_| (free_port(), free_port())).collect(),
            processes: (0..NODES).map(|_| None).collect(),
            runtime,
            operator,
            op: 0,
            epoch: 0,
            tells: 0,
            segments: BTreeMap::new(),
        };
        (0..NODES).for_each(|node| plane.restart(node));
        plane
    }

    /// A record file.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.jsonl"))
    }

    pub(crate) fn client_env(&self) -> Vec<(&'static str, String)> {
        let file = |name: &str| self.folder.join(name).display().to_string();
        let servers: Vec<_> = self.ports.iter().map(|(port, _)| format!("127.0.0.1:{port}")).collect();
        vec![
            ("BRAID_SERVER", servers.join(",")),
            ("BRAID_CA", file("ca.crt")),
            ("BRAID_CERT", file("client.crt")),
            ("BRAID_KEY", file("client.key")),
        ]
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self, node: usize) {
        let mut process = self.processes[node].take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Starts a node over its data, and tells it what an operator would.
    pub(crate) fn restart(&mut self, node: usize) {
        let file = |name: String| self.folder.join(name);
        let (port, http) = self.ports[node];
        let log = std::fs::OpenOptions::new().create(true).append(true).open(file(format!("node-{node}.log"))).unwrap();
        let process = Command::new(program())
            .args(["--store", &store(node), "--data-plane", "default"])
            .args(["--listen", &format!("127.0.0.1:{port}"), "--http", &format!("127.0.0.1:{http}")])
            .arg("--data")
            .arg(file(format!("data-{node}")))
            .arg("--ca")
            .arg(file("ca.crt".into()))
            .arg("--cert")
            .arg(file(format!("{}.crt", store(node))))
            .arg("--key")
            .arg(file(format!("{}.key", store(node))))
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        self.processes[node] = Some(process);
        if self.epoch > 0 {
            let layout = self.layout();
            self.command(node, request::Command::Tell(layout));
        }
    }

    /// Sends one command on a channel of its own, and again until it is answered.
    fn command(&mut self, node: usize, command: request::Command) -> response::Result {
        let fence = Some(proto::Fence { term: 1, op: self.op });
        let request = proto::Request { id: 1, fence, topic: Some(topic()), command: Some(command) };
        let address = format!("127.0.0.1:{}", self.ports[node].0);
        let name = format!("{}.default.nodes.braid", store(node));
        let started = Instant::now();
        self.runtime.block_on(async {
            loop {
                match ask(&self.operator, &address, &name, &request).await {
                    Ok(answer) => return answer,
                    Err(reason) => assert!(started.elapsed() < Duration::from_secs(30), "node {node}: {reason}"),
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
    }

    fn done(&mut self, node: usize, command: request::Command) {
        let answer = self.command(node, command);
        assert!(!matches!(answer, response::Result::Refused(_)), "{answer:?}");
    }

    fn layout(&self) -> proto::TopicLayout {
        proto::TopicLayout {
            topic: Some(topic()),
            term: 1,
            sequence: self.tells,
            epoch: self.epoch,
            segments: self.segments.values().cloned().collect(),
            nodes: self.nodes(),
            home_store: store(0),
            home_term: 1,
            subscriptions: vec![subscription()],
            ..Default::default()
        }
    }

    fn nodes(&self) -> Vec<proto::Node> {
        let node =
            |i: usize| proto::Node { store: store(i), addresses: vec![format!("127.0.0.1:{}", self.ports[i].0)] };
        (0..NODES).map(node).collect()
    }

    fn tell(&mut self) {
        self.tells += 1;
        for node in 0..NODES {
            let layout = self.layout();
            self.done(node, request::Command::Tell(layout));
        }
    }

    /// One segment of four buckets, and the subscription `s`.
    pub(crate) fn create_topic(&mut self) {
        self.op = 1;
        let root = self.child(0, (0, 65_535), 4, &[]);
        self.create(std::slice::from_ref(&root));
        self.segments.insert(0, root);
        self.epoch = 1;
        self.tell();
    }

    /// Into two: the next two ids.
    pub(crate) fn split(&mut self, id: u64) {
        let parent = self.segments[&id].clone();
        let middle = u32::midpoint(parent.start, parent.end);
        let next = self.next_id();
        let buckets = (parent.buckets / 2).max(1);
        let low = self.child(next, (parent.start, middle), buckets, &[id]);
        let high = self.child(next + 1, (middle + 1, parent.end), buckets, &[id]);
        self.change(&[id], vec![low, high]);
    }

    pub(crate) fn rebucket(&mut self, id: u64, buckets: u32) {
        let parent = self.segments[&id].clone();
        let child = self.child(self.next_id(), (parent.start, parent.end), buckets, &[id]);
        self.change(&[id], vec![child]);
    }

    /// `a` lies below `b`.
    pub(crate) fn merge(&mut self, a: u64, b: u64) {
        let (low, high) = (self.segments[&a].clone(), self.segments[&b].clone());
        assert_eq!(low.end + 1, high.start);
        let child = self.child(self.next_id(), (low.start, high.end), low.buckets + high.buckets, &[a, b]);
        self.change(&[a, b], vec![child]);
    }

    fn next_id(&self) -> u64 {
        self.segments.last_key_value().map_or(0, |(id, _)| id + 1)
    }

    fn child(&self, id: u64, (start, end): (u32, u32), buckets: u32, parents: &[u64]) -> proto::Segment {
        proto::Segment {
            id,
            start,
            end,
            buckets,
            parents: parents.to_vec(),
            store: store(id as usize % NODES),
            created_epoch: self.epoch + 1,
            created_at_us: 1,
            ..Default::default()
        }
    }

    fn create(&mut self, children: &[proto::Segment]) {
        for child in children {
            let create = proto::CreateSegments {
                segments: vec![child.clone()],
                subscriptions: vec![subscription()],
                nodes: self.nodes(),
            };
            self.done(child.id as usize % NODES, request::Command::Create(create));
        }
    }

    fn change(&mut self, parents: &[u64], children: Vec<proto::Segment>) {
        self.op += 1;
        self.create(&children);
        self.epoch += 1;
        for id in parents {
            let nodes = self.nodes();
            let seal = proto::Seal { segment: *id, epoch: self.epoch, successors: children.clone(), nodes };
            self.done(*id as usize % NODES, request::Command::Seal(seal));
            let parent = self.segments.get_mut(id).unwrap();
            parent.sealed = true;
            parent.sealed_epoch = self.epoch;
            parent.sealed_at_us = 2;
            parent.children = children.iter().map(|child| child.id).collect();
        }
        self.segments.extend(children.into_iter().map(|child| (child.id, child)));
        self.tell();
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().flatten() {
            let _ = process.kill();
            let _ = process.wait();
        }
        if std::thread::panicking() {
            eprintln!("logs and records are in {}", self.folder.display());
        } else {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

fn topic() -> proto::TopicRef {
    proto::TopicRef { namespace: "n".into(), name: "t".into(), incarnation: INCARNATION }
}

fn subscription() -> proto::SubscriptionSpec {
    proto::SubscriptionSpec { name: "s".into(), generation: 1, handoff_deadline_ms: 30_000, ..Default::default() }
}

async fn ask(
    operator: &Endpoint,
    address: &str,
    name: &str,
    request: &proto::Request,
) -> Result<response::Result, String> {
    let connection = operator.connect(Alpn::Control, &[address], name).await.map_err(|e| e.to_string())?;
    let channel: Channel = connection.open().await.map_err(|e| e.to_string())?;
    let (mut sender, mut receiver) = channel.split();
    let hello = proto::Hello { version: VERSION, name: "operator".into() };
    sender.send(&hello.into()).await.map_err(|e| e.to_string())?;
    sender.send(&request.clone().into()).await.map_err(|e| e.to_string())?;
    let answer = async {
        loop {
            match receiver.next().await.map_err(|e| e.to_string())? {
                Some(Frame::Response(response)) => return response.result.ok_or_else(|| "an empty answer".into()),
                Some(Frame::Refused(refused)) => return Err(format!("{refused:?}")),
                Some(_) => {}
                None => return Err("the node ended the channel".into()),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(5), answer).await.map_err(|_| "no answer in 5 s".to_owned())?
}
