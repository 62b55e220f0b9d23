//! `geonce serve`: settings in, a running gateway out; or only the settings, for a file.

use crate::arguments::ServeArguments;
use crate::config::{self, Overrides, Settings};
use crate::failure::{Failure, Outcome};
use crate::gateway;
use crate::show::Page;
use std::path::Path;

/// Runs the command: serves until told to stop, or writes what is in force.
pub(crate) fn run(arguments: &ServeArguments) -> Outcome {
    let settings = config::load(&Overrides {
        config: arguments.config.clone(),
        data: arguments.data.clone(),
        listen: arguments.listen,
        store: None,
    })?;
    match &arguments.save_config {
        Some(file) => save(&settings, file),
        None => gateway::run(&settings),
    }
}

fn save(settings: &Settings, file: &Path) -> Outcome {
    let text = settings.to_toml();
    if file == Path::new("-") {
        Page::new().print(text.trim_end())?;
    } else {
        std::fs::write(file, text).map_err(|error| Failure::io(&file.display().to_string(), &error))?;
    }
    Ok(true)
}
