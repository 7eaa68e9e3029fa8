//! The keyed wheel, one program. What counts threads or heap, starts processes or takes real time has
//! one of its own: `keyed_*.rs` beside this folder.

#[path = "../support"]
mod support {
    pub(crate) mod counted;
    pub(crate) mod model;
    pub(crate) mod program;
    pub(crate) mod timeline;
    pub(crate) mod within;
}

mod cases;
mod circle;
mod drain;
mod edges;
mod executor;
mod limit;
mod model;
mod stream;
mod wild_clock;
