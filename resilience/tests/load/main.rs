//! What bounds load: bulkheads, limits, the shedder and what it knows of the processor, and the meters
//! of all.

#[cfg(feature = "metrics")]
#[path = "../support"]
mod support {
    pub(crate) mod figures;
}

mod bulkhead;
#[cfg(feature = "tokio")]
mod bulkhead_model;
mod cpu_meter;
mod limit;
#[cfg(all(feature = "metrics", feature = "tokio"))]
mod meters;
mod shedder;
#[cfg(feature = "metrics")]
mod shedder_meters;
mod shedder_model;
mod shedder_samples;
