//! Names of hosts: looked up once in a while, one look-up of a name at a time, and checked.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::client::legacy::connect::dns::Name;
use tower_service::Service;
use wheelhouse_cache::{BuildError, Cache, TakeError};

use super::special::is_public;

/// How long the addresses of a name are remembered: short, so that a host that moves is found, and long
/// enough that a burst of connections asks once.
const REMEMBERED: Duration = Duration::from_secs(5);
/// Names that are remembered.
const NAMES: u64 = 4_096;

/// Resolves names for connections. Addresses that are written out in a URL do not come here.
#[derive(Debug, Clone)]
pub(super) struct Resolver {
    addresses: Cache<String, Arc<[IpAddr]>>,
    refuse_private: bool,
}

/// A target is at no public address, and such are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("its address is not public, and such targets are refused")]
pub(super) struct NotPublic;

type Resolving = Pin<Box<dyn Future<Output = io::Result<std::vec::IntoIter<SocketAddr>>> + Send>>;

impl Resolver {
    pub(super) fn new(refuse_private: bool) -> Result<Self, BuildError> {
        let addresses = Cache::builder()
            .name("addresses")
            .capacity(NAMES)
            .time_to_live(REMEMBERED)
            .build()?;
        Ok(Resolver {
            addresses,
            refuse_private,
        })
    }

    async fn resolve(self, name: String) -> io::Result<std::vec::IntoIter<SocketAddr>> {
        let looked_up = self.addresses.try_take_async(name.clone(), async {
            let found = tokio::net::lookup_host((&*name, 0)).await?;
            Ok::<Arc<[IpAddr]>, io::Error>(found.map(|it| it.ip()).collect())
        });
        let all = looked_up.await.map_err(|error| match error {
            TakeError::Failed(error) => io::Error::new(error.kind(), error.to_string()),
            other => io::Error::other(other.to_string()),
        })?;
        // With each connection anew, whoever looked it up.
        let allowed = all
            .iter()
            .filter(|address| !self.refuse_private || is_public(**address));
        let allowed: Vec<_> = allowed.map(|ip| SocketAddr::new(*ip, 0)).collect();
        match allowed.is_empty() && !all.is_empty() {
            true => Err(io::Error::other(NotPublic)),
            false => Ok(allowed.into_iter()),
        }
    }
}

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Resolving;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Resolving {
        Box::pin(self.clone().resolve(name.as_str().to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_is_checked_by_what_it_resolves_to() {
        let open = Resolver::new(false).unwrap();
        let found = open.clone().resolve("localhost".to_owned()).await.unwrap();
        assert!(found.count() > 0);
        let shut = Resolver {
            refuse_private: true,
            ..open
        };
        // The numbers are addresses too, in the manner of inet_aton, for most systems.
        for name in ["localhost", "2130706433", "0x7f.1", "127.1"] {
            let Err(error) = shut.clone().resolve(name.to_owned()).await else {
                panic!("{name} is let through");
            };
            let source = error
                .get_ref()
                .and_then(|it| it.downcast_ref::<NotPublic>());
            assert!(source.is_some() || name != "localhost", "{name}: {error}");
        }
        assert_eq!(shut.addresses.stats().hits, 1);
    }
}
