//! The `geonce` command: reads arguments, runs a command, turns its outcome into an exit code.
//!
//! Results go to standard output, everything else to standard error. Exit codes: 0 yes, 1 the answer is no,
//! 2 usage or environment.

mod arguments;
mod config;
mod demo;
mod explain;
mod failure;
mod gateway;
mod input;
mod key;
#[allow(dead_code, unused_imports, reason = "used once the serve command is there")]
mod serve;

use arguments::{Arguments, Command};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match &arguments.command {
        Command::Key(arguments) => key::run(arguments),
        Command::Explain(arguments) => explain::run(arguments),
        Command::Serve(a) => config::load(&config::Overrides { config: a.config.clone(), data: a.data.clone(), listen: a.listen, store: None }).and_then(|s| gateway::run(&s)),
        Command::Demo => demo::run(),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(failure) if failure.is_broken_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::from(2)
        }
    }
}
