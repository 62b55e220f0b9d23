//! `geonce serve`: settings in, a running gateway out.

use crate::arguments::ServeArguments;
use crate::config::{self, Overrides, Settings};
use crate::failure::{Failure, Outcome};
use crate::show::Page;
use std::path::Path;

/// Runs the command, or writes what is in force.
pub(crate) fn command(arguments: &ServeArguments) -> Outcome {
    let settings = config::load(&Overrides {
        config: arguments.config.clone(),
        data: arguments.data.clone(),
        listen: arguments.listen,
        store: None,
    })?;
    if let Some(file) = &arguments.save_config {
        return save(&settings, file);
    }
    run(settings)
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

/// Serves until it is told to stop.
fn run(_settings: Settings) -> Outcome {
    Err(Failure::new("not_yet", "the gateway is not in this build"))
}
