//! Which addresses may be called: public ones, and private or local networks that the configuration lists.
//!
//! Judged are addresses, after a name was resolved and before anything is dialled. How a host is spelt, and what its
//! name claims, does not matter.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    base: IpAddr,
    prefix_bits: u32,
}

impl Network {
    const fn v4(a: u8, b: u8, c: u8, d: u8, prefix_bits: u32) -> Network {
        Network { base: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), prefix_bits }
    }

    const fn v6(first: u16, second: u16, third: u16, prefix_bits: u32) -> Network {
        Network { base: IpAddr::V6(Ipv6Addr::new(first, second, third, 0, 0, 0, 0, 0)), prefix_bits }
    }

    /// Whether an address is in it.
    fn contains(&self, address: IpAddr) -> bool {
        let (base, base_bits) = number(self.base);
        let (address, bits) = number(address);
        base_bits == bits && (base ^ address).checked_shr(bits - self.prefix_bits).unwrap_or(0) == 0
    }
}

/// An address as a number, and how many bits it has.
fn number(address: IpAddr) -> (u128, u32) {
    match address {
        IpAddr::V4(v4) => (u128::from(u32::from(v4)), 32),
        IpAddr::V6(v6) => (u128::from(v6), 128),
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Network, String> {
        let (base, prefix) = text.split_once('/').map_or((text, None), |(base, prefix)| (base, Some(prefix)));
        let base: IpAddr = base.parse().map_err(|_| format!("{text:?} is no network"))?;
        let (value, bits) = number(base);
        let prefix_bits = match prefix {
            None => bits,
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits
                .parse()
                .ok()
                .filter(|prefix| (1..=bits).contains(prefix))
                .ok_or_else(|| format!("{text:?}: the number behind the slash is not between 1 and {bits}"))?,
            Some(_) => return Err(format!("{text:?} is no network")),
        };
        let host_bits = value.checked_shl(128 - bits + prefix_bits).unwrap_or(0);
        if host_bits != 0 {
            return Err(format!("{text:?} has bits set behind its first {prefix_bits}"));
        }
        Ok(Network { base, prefix_bits })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix_bits)
    }
}

/// Ranges of IPv4 that are not the public internet: IANA's special-purpose registry, multicast, the reserved block,
/// and one cloud's host service that lives outside of them.
const CLOSED_V4: &[Network] = &[
    Network::v4(0, 0, 0, 0, 8),
    Network::v4(10, 0, 0, 0, 8),
    Network::v4(100, 64, 0, 0, 10),
    Network::v4(127, 0, 0, 0, 8),
    // Link-local: where clouds answer questions about credentials.
    Network::v4(169, 254, 0, 0, 16),
    Network::v4(172, 16, 0, 0, 12),
    Network::v4(192, 0, 0, 0, 24),
    Network::v4(192, 0, 2, 0, 24),
    Network::v4(192, 88, 99, 0, 24),
    Network::v4(192, 168, 0, 0, 16),
    Network::v4(198, 18, 0, 0, 15),
    Network::v4(198, 51, 100, 0, 24),
    Network::v4(203, 0, 113, 0, 24),
    Network::v4(224, 0, 0, 0, 4),
    Network::v4(240, 0, 0, 0, 4),
    Network::v4(168, 63, 129, 16, 32),
];

/// Of IPv6 only global unicast is public, without these parts of it: protocol assignments and Teredo, documentation,
/// and 6to4, which carries an IPv4 address that nobody has judged.
const GLOBAL_V6: Network = Network::v6(0x2000, 0, 0, 3);
const CLOSED_V6: &[Network] = &[
    Network::v6(0x2001, 0, 0, 23),
    Network::v6(0x2001, 0x0db8, 0, 32),
    Network::v6(0x2002, 0, 0, 16),
    Network::v6(0x3fff, 0, 0, 20),
];
/// NAT64: the last 32 bits are the IPv4 address that is really called.
const NAT64: Network = Network::v6(0x0064, 0xff9b, 0, 96);

/// The addresses that may be called.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guard {
    allow: Vec<Network>,
}

impl Guard {
    /// Public addresses and these networks.
    pub(super) fn new(allow: Vec<Network>) -> Guard {
        Guard { allow }
    }

    /// Whether an address may be called.
    pub(crate) fn permits(&self, address: IpAddr) -> bool {
        // An IPv4 address in IPv6 clothing is called over IPv4.
        let address = address.to_canonical();
        self.allow.iter().any(|network| network.contains(address)) || is_public(address)
    }
}

fn is_public(address: IpAddr) -> bool {
    let closed = |networks: &[Network]| networks.iter().any(|network| network.contains(address));
    match address {
        IpAddr::V4(_) => !closed(CLOSED_V4),
        IpAddr::V6(v6) if NAT64.contains(address) => {
            let [.., a, b, c, d] = v6.octets();
            is_public(IpAddr::V4(Ipv4Addr::new(a, b, c, d)))
        }
        IpAddr::V6(_) => GLOBAL_V6.contains(address) && !closed(CLOSED_V6),
    }
}
