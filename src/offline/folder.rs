//! Finding the data folder that a command is about, and keeping a broker away from it meanwhile.

use std::path::{Path, PathBuf};

use super::{CANNOT, Failed};
use crate::config::args::BrokerArgs;
use crate::config::{self, Config};
use crate::log::layout::Layout;
use crate::runtime::startup::{self, DataDirLock};

/// A data folder that no broker uses, to be changed.
pub struct Held {
    /// The settings that a broker would have here: those of the environment and the defaults.
    pub config: Config,
    /// What is where.
    pub layout: Layout,
    _lock: DataDirLock,
}

impl Held {
    /// Takes the data folder `data`, or the one of the settings where none is given.
    ///
    /// # Errors
    /// A sentence: it is no data folder, or a broker uses it.
    pub fn take(data: Option<&PathBuf>) -> Result<Self, Failed> {
        let args = BrokerArgs { data_dir: data.cloned(), ..BrokerArgs::default() };
        let loaded = config::load(&args).map_err(|error| Failed::with(error.exit_status(), error.to_string()))?;
        let layout = Layout::new(&loaded.config.data_dir);
        must_be_data_folder(&layout)?;
        let lock = startup::lock_data_dir(layout.root())?;
        Ok(Self { config: loaded.config, layout, _lock: lock })
    }
}

/// A data folder that no broker uses, to be looked at; nothing in it is written, not even the lock.
pub struct Watched {
    /// What is where.
    pub layout: Layout,
    _lock: Option<DataDirLock>,
}

impl Watched {
    /// Takes the data folder `data`.
    ///
    /// # Errors
    /// A sentence and the status for "cannot be checked": it is no data folder, or a broker uses it.
    pub fn take(data: &Path) -> Result<Self, Failed> {
        let layout = Layout::new(data);
        must_be_data_folder(&layout)?;
        let lock = startup::watch_data_dir(data).map_err(|sentence| Failed::with(CANNOT, sentence))?;
        Ok(Self { layout, _lock: lock })
    }
}

fn must_be_data_folder(layout: &Layout) -> Result<(), Failed> {
    if layout.own().is_dir() {
        return Ok(());
    }
    let root = layout.root().display();
    let sentence = format!("{root} is no data folder of corelane: there is no folder corelane in it");
    Err(Failed::with(CANNOT, sentence))
}
