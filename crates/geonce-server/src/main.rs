//! The `geonce` command: reads arguments, runs a command, turns its outcome into an exit code.
//!
//! Results go to standard output, everything else to standard error. Exit codes: 0 yes, 1 the answer is no,
//! 2 usage or environment, 130 ended by Ctrl-C. `once` passes on the code of its command, and has 125 for its own failures.

mod api;
mod arguments;
mod check;
mod client;
mod config;
mod dead;
mod demo;
mod doctor;
mod events;
mod explain;
mod failure;
mod gateway;
mod hints;
mod input;
mod key;
mod load;
mod nearness;
mod once;
mod payload;
mod record;
mod runner;
mod serve;
mod show;
mod start;
mod tool;
mod treated;

use arguments::{Arguments, Command};
use clap::{CommandFactory, Parser};
use failure::Outcome;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return unparsed(&error),
    };
    let outcome = match &arguments.command {
        Command::Key(arguments) => key::run(arguments),
        Command::Explain(arguments) => explain::run(arguments),
        Command::Serve(arguments) => start::run(arguments),
        Command::Check(arguments) => check::run(arguments),
        Command::Load(arguments) => match load::run(arguments) {
            Ok(code) => return code,
            Err(failure) => Err(failure),
        },
        Command::Once(arguments) => return once::run(arguments),
        Command::Guard => return once::guard(),
        Command::Events(command) => events::run(command),
        Command::Dead(arguments) => match dead::run(arguments) {
            Ok(code) => return code,
            Err(failure) => Err(failure),
        },
        Command::Doctor(arguments) => doctor::run(arguments),
        Command::Completions { shell } => completions(*shell),
        Command::Demo(arguments) => demo::run(arguments),
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

/// Help, or what is wrong with the arguments.
fn unparsed(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    let once = std::env::args_os().nth(1).is_some_and(|command| command == "once");
    match error.exit_code() {
        // For whoever runs a command by us, 2 is the command's.
        code if code != 0 && once => ExitCode::from(once::OWN_FAILURE),
        code => ExitCode::from(u8::try_from(code).unwrap_or(2)),
    }
}

/// Prints a script for a shell.
fn completions(shell: clap_complete::Shell) -> Outcome {
    // Made in memory first: a reader that goes away must not end in a panic.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "geonce", &mut script);
    show::Page::new().print(String::from_utf8_lossy(&script).trim_end())?;
    Ok(true)
}
