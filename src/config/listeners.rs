//! The address to listen on and the address to tell clients, out of Kafka's listener settings.
//!
//! Kafka's lists may name several listeners; corelane serves one, in plain text, and skips those of Kafka's controller.

use super::origin::Values;
use super::value::list;
use std::fmt;

/// A host and a port; the host as typed: a name, an IPv4 address, or an IPv6 address without brackets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Host; empty means every interface.
    pub host: String,
    /// Port; 0 means a free one, chosen at start.
    pub port: u16,
}

impl Endpoint {
    /// Reads `host:port`, `[v6]:port` or `:port`.
    ///
    /// # Errors
    /// Half a sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (host, port) = text.rsplit_once(':').ok_or_else(|| format!("{text:?} is not HOST:PORT"))?;
        let port = port.parse().map_err(|_| format!("{port:?} in {text:?} is not a port (0 to 65535)"))?;
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if bare.is_none() && host.contains([':', '[', ']', '/', ' ']) {
            return Err(format!("{host:?} in {text:?} is not a host; an IPv6 address stands in brackets"));
        }
        Ok(Self { host: bare.unwrap_or(host).to_owned(), port })
    }

    /// Whether it stands for every interface, so that no client can connect to it by this address.
    #[must_use]
    pub fn is_every_interface(&self) -> bool {
        matches!(self.host.as_str(), "" | "0.0.0.0" | "::")
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// One entry of a listener list.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Listener {
    name: String,
    endpoint: Endpoint,
}

impl Listener {
    fn parse(text: &str) -> Result<Self, String> {
        let (name, address) = text.split_once("://").ok_or_else(|| format!("{text:?} is not NAME://HOST:PORT"))?;
        Ok(Self { name: name.to_ascii_uppercase(), endpoint: Endpoint::parse(address)? })
    }
}

/// What to bind and what to advertise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Addresses {
    /// Name of the served listener.
    pub name: String,
    /// What to bind.
    pub listen: Endpoint,
    /// What clients are told; port 0 stands for the port that was bound.
    pub advertised: Endpoint,
}

/// Takes the one served listener out of the settings, with its advertised address.
///
/// # Errors
/// A sentence that names the setting, its origin and what to change.
pub(super) fn addresses(values: &Values, host_name: impl Fn() -> Option<String>) -> Result<Addresses, String> {
    let served = the_one(values, "listeners")?;
    protocol_is_served(values, &served.name)?;
    let advertised = match values.text("advertised.listeners") {
        Some(text) if !text.is_empty() => advertised_as(values, &served.name)?,
        _ => default_advertised(&served.endpoint, host_name)?,
    };
    Ok(Addresses { name: served.name, listen: served.endpoint, advertised })
}

/// The entries of a list that are not Kafka's controller's.
fn entries(values: &Values, setting: &str) -> Result<Vec<Listener>, String> {
    let skipped: Vec<String> =
        list(values.text("controller.listener.names").unwrap_or_default()).map(str::to_ascii_uppercase).collect();
    let parsed = list(values.text(setting).unwrap_or_default()).map(Listener::parse).collect::<Result<Vec<_>, _>>();
    let mut parsed = parsed.map_err(|why| refused(values, setting, &why))?;
    parsed.retain(|listener| !skipped.contains(&listener.name));
    Ok(parsed)
}

fn the_one(values: &Values, setting: &str) -> Result<Listener, String> {
    let mut entries = entries(values, setting)?;
    match (entries.pop(), entries.len()) {
        (Some(one), 0) => Ok(one),
        (None, _) => {
            Err(refused(values, setting, "it names no listener for clients; give one, as PLAINTEXT://host:port"))
        }
        (Some(_), more) => {
            let count = more + 1;
            let why = format!(
                "it names {count} listeners and corelane serves one; remove the others, or name them in controller.listener.names if they are a controller's"
            );
            Err(refused(values, setting, &why))
        }
    }
}

/// Refuses a listener whose protocol is not plain text.
fn protocol_is_served(values: &Values, name: &str) -> Result<(), String> {
    let map = values.text("listener.security.protocol.map").unwrap_or_default();
    let protocol =
        list(map).filter_map(|pair| pair.split_once(':')).find(|(key, _)| key.trim().eq_ignore_ascii_case(name));
    match protocol.map(|(_, protocol)| protocol.trim().to_ascii_uppercase()).as_deref() {
        Some("PLAINTEXT") => Ok(()),
        Some(other) => Err(refused(
            values,
            "listeners",
            &format!("listener {name} speaks {other} by listener.security.protocol.map, and only PLAINTEXT is served"),
        )),
        None => Err(refused(
            values,
            "listeners",
            &format!("listener.security.protocol.map has no protocol for {name}; add {name}:PLAINTEXT"),
        )),
    }
}

/// The advertised address of the served listener.
fn advertised_as(values: &Values, name: &str) -> Result<Endpoint, String> {
    const SETTING: &str = "advertised.listeners";
    let found = entries(values, SETTING)?.into_iter().find(|listener| listener.name == name);
    let advertised = found
        .ok_or_else(|| {
            refused(values, SETTING, &format!("it has no entry for the listener {name}; add {name}://host:port"))
        })?
        .endpoint;
    if advertised.is_every_interface() {
        return Err(refused(
            values,
            SETTING,
            "clients cannot connect to an address that stands for every interface; give a host name or address",
        ));
    }
    Ok(advertised)
}

/// Without a setting: the address that is listened on; for every interface the name of this host, as Kafka does.
fn default_advertised(listen: &Endpoint, host_name: impl Fn() -> Option<String>) -> Result<Endpoint, String> {
    if !listen.is_every_interface() {
        return Ok(listen.clone());
    }
    let unknown = || {
        format!(
            "listeners = {listen} stands for every interface; say with --advertise HOST:PORT what clients are to connect to"
        )
    };
    let host = if listen.host.is_empty() { host_name() } else { None };
    Ok(Endpoint { host: host.ok_or_else(unknown)?, port: listen.port })
}

fn refused(values: &Values, setting: &str, why: &str) -> String {
    let value = values.text(setting).unwrap_or_default();
    format!("{setting} = {value} ({}) is refused: {why}.", values.origin(setting))
}

#[cfg(test)]
mod tests {
    use super::super::origin::{Origin, Value};
    use super::*;

    fn values(pairs: &[(&'static str, &str)]) -> Values {
        let mut values = Values::default();
        for (name, text) in pairs {
            let origin = Origin::CommandLine { flag: "--set" };
            values.fixed.insert(name, Value { text: (*text).to_owned(), origin });
        }
        values
    }

    fn of(pairs: &[(&'static str, &str)]) -> Result<(String, String), String> {
        addresses(&values(pairs), || Some("here".to_owned())).map(|a| (a.listen.to_string(), a.advertised.to_string()))
    }

    fn both(listen: &str, advertised: &str) -> Result<(String, String), String> {
        Ok((listen.to_owned(), advertised.to_owned()))
    }

    #[test]
    fn advertised_is_the_listener_where_nothing_is_said() {
        assert_eq!(of(&[]), both("127.0.0.1:9092", "127.0.0.1:9092"));
        assert_eq!(of(&[("listeners", "PLAINTEXT://[::1]:0")]), both("[::1]:0", "[::1]:0"));
        assert_eq!(of(&[("listeners", "PLAINTEXT://:9092")]), both(":9092", "here:9092"));
    }

    #[test]
    fn a_controllers_listener_is_skipped_and_names_may_be_mapped() {
        let file = [
            ("listeners", "OUT://0.0.0.0:1,CONTROLLER://127.0.0.1:2"),
            ("advertised.listeners", "OUT://example.org:11,CONTROLLER://127.0.0.1:2"),
            ("controller.listener.names", "CONTROLLER"),
            ("listener.security.protocol.map", "CONTROLLER:SSL,OUT:PLAINTEXT"),
        ];
        assert_eq!(of(&file), both("0.0.0.0:1", "example.org:11"));
    }

    #[test]
    fn what_cannot_be_served_is_refused_with_a_way_out() {
        let refused = |pairs: &[(&'static str, &str)]| of(pairs).unwrap_err();
        assert!(refused(&[("listeners", "A://h:1,B://h:2")]).contains("controller.listener.names"));
        assert!(refused(&[("listeners", "SSL://h:1")]).contains("only PLAINTEXT"));
        assert!(refused(&[("listeners", "OUT://h:1")]).contains("OUT:PLAINTEXT"));
        assert!(refused(&[("listeners", "h:1")]).contains("NAME://HOST:PORT"));
        assert!(refused(&[("listeners", "PLAINTEXT://h:70000")]).contains("70000"));
        assert!(refused(&[("listeners", "PLAINTEXT://::1:9092")]).contains("brackets"));
        assert!(refused(&[("listeners", "PLAINTEXT://0.0.0.0:1")]).contains("--advertise"));
        assert!(refused(&[("advertised.listeners", "PLAINTEXT://0.0.0.0:1")]).contains("every interface"));
        assert!(refused(&[("advertised.listeners", "X://h:1")]).contains("PLAINTEXT://host:port"));
        assert!(refused(&[("listeners", "")]).contains("no listener"));
    }
}
