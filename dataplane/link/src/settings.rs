//! How QUIC is set up: windows, limits, timeouts and the UDP socket. Figures come from measurements on two cores.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use quinn::congestion::CubicConfig;
use quinn::{EndpointConfig, IdleTimeout, MtuDiscoveryConfig, TransportConfig, VarInt};
use socket2::{Domain, Protocol, Socket, Type};

/// A connection from which nothing came for this long is over.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(3);
/// A connection with nothing to say says so this often.
pub const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// Bidirectional streams that a peer may have open at a time on one connection.
pub const STREAMS_MAX: u32 = 4096;

/// Bytes of a stream that the peer may send ahead of its reader.
const STREAM_WINDOW: u32 = 4 << 20;
/// The same for all streams of a connection together: what one peer can make this side hold.
const CONNECTION_WINDOW: u32 = 8 << 20;
/// What this side holds for a peer that does not acknowledge.
const SEND_WINDOW: u64 = 8 << 20;
/// quinn sends batches of ten payloads, and the kernel takes 65,507 bytes at a time: above 6,550 whole batches would vanish.
const UDP_PAYLOAD_MAX: u16 = 6_500;
/// Ten of the largest payloads. quinn 0.11 sends no close while its window is full (quinn issue 2785), and with its own initial
/// window of 12,000 bytes the first probes for a larger payload fill it: a connection that ended early ended in silence.
const INITIAL_WINDOW: u64 = 10 * UDP_PAYLOAD_MAX as u64;
/// Smaller ones lose packets in bursts, even on loopback. The kernel grants up to `net.core.{r,w}mem_max`.
const SOCKET_BUFFER: usize = 4 << 20;

pub(crate) fn transport() -> Arc<TransportConfig> {
    let mut mtu = MtuDiscoveryConfig::default();
    mtu.upper_bound(UDP_PAYLOAD_MAX);
    let idle = IdleTimeout::try_from(IDLE_TIMEOUT).expect("3 s fit in a QUIC idle timeout");
    let mut cubic = CubicConfig::default();
    cubic.initial_window(INITIAL_WINDOW);
    let mut transport = TransportConfig::default();
    transport
        .max_idle_timeout(Some(idle))
        .keep_alive_interval(Some(KEEP_ALIVE))
        .max_concurrent_bidi_streams(VarInt::from_u32(STREAMS_MAX))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .receive_window(VarInt::from_u32(CONNECTION_WINDOW))
        .send_window(SEND_WINDOW)
        .datagram_receive_buffer_size(None)
        .congestion_controller_factory(Arc::new(cubic))
        .mtu_discovery_config(Some(mtu))
        .enable_segmentation_offload(true);
    Arc::new(transport)
}

pub(crate) fn endpoint() -> EndpointConfig {
    let mut config = EndpointConfig::default();
    config.max_udp_payload_size(65_527).expect("65,527 is the greatest UDP payload");
    config
}

/// A bound UDP socket with large buffers. On an unspecified IPv6 address it takes IPv4 too.
pub(crate) fn socket(listen: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(listen), Type::DGRAM, Some(Protocol::UDP))?;
    if listen.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
        socket.set_only_v6(false)?;
    }
    socket.set_recv_buffer_size(SOCKET_BUFFER)?;
    socket.set_send_buffer_size(SOCKET_BUFFER)?;
    socket.bind(&listen.into())?;
    tracing::debug!(
        %listen,
        receive_bytes = socket.recv_buffer_size().unwrap_or_default(),
        send_bytes = socket.send_buffer_size().unwrap_or_default(),
        "socket buffers"
    );
    Ok(socket.into())
}
