//! What the program is told when it starts.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;

/// A node of Braid's data plane: it holds segments of topics and serves producers and consumers over QUIC.
#[derive(Clone, Debug, Parser)]
#[command(name = "braid-node", version)]
pub struct Args {
    /// The name of the store in `--data`, and of this node.
    #[arg(long, value_parser = name)]
    pub store: String,
    /// The data plane that this node belongs to.
    #[arg(long, default_value = "default", value_parser = name)]
    pub data_plane: String,
    /// Where clients, operators and nodes connect, over UDP.
    #[arg(long, default_value = "0.0.0.0:4433")]
    pub listen: SocketAddr,
    /// Where `/livez`, `/readyz` and `/metrics` are served, over TCP.
    #[arg(long, default_value = "0.0.0.0:8080")]
    pub http: SocketAddr,
    /// The folder of the store; it is made if it is not there.
    #[arg(long)]
    pub data: PathBuf,
    /// The CA's certificate, as PEM. This and the next two files may be replaced while the node runs.
    #[arg(long)]
    pub ca: PathBuf,
    /// This node's certificate chain, as PEM.
    #[arg(long)]
    pub cert: PathBuf,
    /// The private key of that certificate, as PEM.
    #[arg(long)]
    pub key: PathBuf,
}

/// What becomes part of a server name: one DNS label.
fn name(text: &str) -> Result<String, String> {
    let is_label = text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    if is_label && (1..=63).contains(&text.len()) && !text.starts_with('-') && !text.ends_with('-') {
        Ok(text.to_owned())
    } else {
        Err("must be 1..=63 lower case letters, digits and inner `-`".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_dns_label() {
        let check = |text: &str, expected: bool| assert_eq!(name(text).is_ok(), expected, "{text:?}");
        check("braid-node-0", true);
        check(&"a".repeat(63), true);
        for bad in ["", "-a", "a-", "A", "a.b", "a_b", &"a".repeat(64)] {
            check(bad, false);
        }
    }

    #[test]
    fn the_arguments_have_these_names() {
        let required = ["braid-node", "--store=s", "--data=d", "--ca=a", "--cert=c", "--key=k"];
        let args = Args::try_parse_from(required).unwrap();
        assert_eq!((args.listen.port(), args.http.port(), args.data_plane.as_str()), (4433, 8080, "default"));
    }
}
