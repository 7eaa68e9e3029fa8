//! Spans around phases, services and connections; nothing at all without the feature `tracing`.

use std::future::Future;

#[cfg(feature = "tracing")]
pub(crate) fn phase<F: Future>(name: &'static str, future: F) -> impl Future<Output = F::Output> {
    tracing::Instrument::instrument(future, tracing::info_span!("phase", name))
}

#[cfg(not(feature = "tracing"))]
pub(crate) fn phase<F: Future>(_name: &'static str, future: F) -> F {
    future
}

#[cfg(feature = "tracing")]
pub(crate) fn service<F: Future>(
    name: &str,
    future: F,
) -> impl Future<Output = F::Output> + use<F> {
    tracing::Instrument::instrument(future, tracing::info_span!("service", name))
}

#[cfg(not(feature = "tracing"))]
pub(crate) fn service<F: Future>(_name: &str, future: F) -> F {
    future
}

#[cfg(all(feature = "tracing", feature = "axum"))]
pub(crate) fn connection<F: Future>(
    service: &str,
    future: F,
) -> impl Future<Output = F::Output> + use<F> {
    tracing::Instrument::instrument(future, tracing::info_span!("connection", service))
}

#[cfg(all(not(feature = "tracing"), feature = "axum"))]
pub(crate) fn connection<F: Future>(_service: &str, future: F) -> F {
    future
}
