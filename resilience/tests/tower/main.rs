//! Layers for tower.
#![cfg(feature = "tower")]

#[cfg(all(feature = "http", feature = "grpc"))]
mod http;
mod layers;
