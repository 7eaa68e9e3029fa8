//! Where the plot goes: known to be writable before the run, and left as it is until the plot
//! is complete.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    process,
};

use crate::failure::Failure;

/// A target that could be written when it was opened.
#[derive(Debug)]
pub(crate) enum PlotFile {
    /// A regular file, there or not: replaced in one step at the end.
    Regular(PathBuf),
    /// A pipe, a device or a standard stream: there is nothing to replace.
    Stream(File),
    /// Standard output, shared with the report, so written through the same handle.
    Stdout,
}

impl PlotFile {
    /// The file of the option `--plot`.
    ///
    /// # Errors
    ///
    /// The usage error that the user gets.
    pub(crate) fn for_option(path: &Path) -> Result<Self, Failure> {
        Self::open(path)
            .map_err(|error| Failure::Usage(format!("--plot: {}: {error}", path.display())))
    }

    /// Looks whether `path` can be written, without a change to what it holds.
    ///
    /// # Errors
    ///
    /// What the system says against it.
    fn open(path: &Path) -> io::Result<Self> {
        if ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"]
            .contains(&path.to_string_lossy().as_ref())
        {
            return Ok(Self::Stdout);
        }
        // These may name a regular file, which somebody else holds open: it must stay that file.
        let borrowed = path == Path::new("/dev/stderr")
            || path.starts_with("/dev/fd")
            || path.starts_with("/proc/self/fd");
        let new = match fs::metadata(path) {
            Ok(there) if borrowed || !(there.is_file() || there.is_dir()) => {
                return File::options().append(true).open(path).map(Self::Stream);
            }
            Ok(_) => false,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        // Created if need be, which shows all that can be wrong with the name and the folder.
        File::options().append(true).create(true).open(path)?;
        // A link stays; what it points to is replaced.
        let target = fs::canonicalize(path)?;
        if new {
            fs::remove_file(&target)?;
        }
        Ok(Self::Regular(target))
    }

    /// Writes the plot; a file that was there before is replaced in one step.
    ///
    /// # Errors
    ///
    /// What the system refused; an old file is then still whole.
    pub(crate) fn write(self, svg: &[u8]) -> io::Result<()> {
        match self {
            Self::Regular(target) => replace(&target, svg),
            Self::Stream(mut file) => file.write_all(svg),
            Self::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(svg)?;
                out.flush()
            }
        }
    }
}

/// Writes a temporary beside `target` and renames it.
fn replace(target: &Path, svg: &[u8]) -> io::Result<()> {
    let temporary = target.with_file_name(format!(".wheelhouse-{}.svg", process::id()));
    let Ok(mut file) = File::options()
        .write(true)
        .create_new(true)
        .open(&temporary)
    else {
        // The file may be written, but nothing may be made beside it.
        return fs::write(target, svg);
    };
    let written = file
        .write_all(svg)
        .and_then(|()| match fs::metadata(target) {
            Ok(old) => file.set_permissions(old.permissions()),
            Err(_) => Ok(()),
        })
        .and_then(|()| fs::rename(&temporary, target));
    if written.is_err() {
        // The first error is the one to tell.
        let _ = fs::remove_file(&temporary);
    }
    written
}
