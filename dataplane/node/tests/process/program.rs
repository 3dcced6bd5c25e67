//! The program `braid-node`, its folder and its end.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout, Command};

use crate::authority::Authority;
use crate::soon;

/// A folder that is gone after the test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("braid-node-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A running node; killed if it is dropped.
pub(crate) struct Program {
    child: Child,
    log: BufReader<ChildStdout>,
    /// "ip:port" of QUIC and of HTTP, from its log.
    pub(crate) listen: String,
    pub(crate) http: String,
}

impl Program {
    /// Starts `store` in `folder` and waits until it serves.
    pub(crate) async fn start(authority: &Authority, folder: &Folder, store: &str) -> Self {
        Self::start_at(authority, folder, store, "127.0.0.1:0").await
    }

    /// The same at a given address.
    pub(crate) async fn start_at(authority: &Authority, folder: &Folder, store: &str, listen: &str) -> Self {
        authority.write_node(folder.path(), store);
        let mut program = Self::spawn_at(folder, store, listen);
        while program.listen.is_empty() {
            program.read_line().await;
        }
        program
    }

    /// Starts it without waiting, and without certificates.
    pub(crate) fn spawn(folder: &Folder, store: &str) -> Self {
        Self::spawn_at(folder, store, "127.0.0.1:0")
    }

    fn spawn_at(folder: &Folder, store: &str, listen: &str) -> Self {
        let at = |name: &str| folder.path().join(name);
        let mut child = Command::new(env!("CARGO_BIN_EXE_braid-node"))
            .args(["--store", store, "--listen", listen, "--http", "127.0.0.1:0"])
            .arg("--data")
            .arg(at("data"))
            .arg("--ca")
            .arg(at("ca.crt"))
            .arg("--cert")
            .arg(at("node.crt"))
            .arg("--key")
            .arg(at("node.key"))
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let log = BufReader::new(child.stdout.take().unwrap());
        Self { child, log, listen: String::new(), http: String::new() }
    }

    /// One line of its log: JSON, like all of them.
    pub(crate) async fn read_line(&mut self) -> String {
        let mut line = String::new();
        let read = soon(self.log.read_line(&mut line)).await.unwrap();
        assert!(read > 0, "the program ended");
        assert!(line.starts_with('{') && line.ends_with("}\n"), "{line}");
        let field = |name: &str| {
            let (_, rest) = line.split_once(&format!("\"{name}\":\""))?;
            rest.split('"').next().map(str::to_owned)
        };
        if field("message").as_deref() == Some("serves") {
            self.listen = field("listen").unwrap();
        }
        if let Some(http) = field("http") {
            self.http = http;
        }
        line
    }

    /// Reads the log until a line says `message`.
    pub(crate) async fn until(&mut self, message: &str) -> String {
        loop {
            let line = self.read_line().await;
            if line.contains(&format!("\"message\":\"{message}\"")) {
                return line;
            }
        }
    }

    /// Status and body of a GET.
    pub(crate) async fn ask(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.http).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        soon(stream.read_to_string(&mut answer)).await.unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
    }

    /// SIGTERM, as a kubelet sends it; how the program ended.
    pub(crate) async fn leave(mut self) -> ExitStatus {
        let pid = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
        self.end().await
    }

    /// How it ends by itself.
    pub(crate) async fn end(&mut self) -> ExitStatus {
        let mut rest = String::new();
        soon(self.log.read_to_string(&mut rest)).await.unwrap();
        soon(self.child.wait()).await.unwrap()
    }

    /// SIGKILL: nothing is drained, flushed or closed.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }
}
