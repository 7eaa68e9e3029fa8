//! Compiles the protocol of the gRPC service.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "grpc")]
    compile()?;
    Ok(())
}

/// With protox, so that no `protoc` is needed.
#[cfg(feature = "grpc")]
fn compile() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(["wheelhouse/v1/tasks.proto"], ["proto"])?;
    let folder = std::path::PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(
        folder.join("descriptors.bin"),
        prost::Message::encode_to_vec(&files),
    )?;
    tonic_prost_build::configure()
        // Clients choose their own transport.
        .build_transport(false)
        .compile_fds(files)?;
    Ok(())
}
