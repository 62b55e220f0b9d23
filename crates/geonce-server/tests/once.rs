//! `geonce once` as its users meet it: real commands, several runners, kills, signals, outputs that change.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should fail")]

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// Long enough for a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_mins(2);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A folder in which commands are run.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// `geonce once` with these words, not started yet.
    fn once(&self, words: &[&str]) -> Command {
        // Whoever runs the tests may ignore signals (`nohup`), and that is inherited.
        let mut command = Command::new("env");
        command
            .args(["--default-signal=HUP,INT,QUIT,TERM", env!("CARGO_BIN_EXE_geonce"), "once"])
            .args(words)
            .current_dir(self.0.path())
            .stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    #[track_caller]
    fn run(&self, words: &[&str], code: i32) -> Ran {
        Ran::of(&self.once(words).output().unwrap(), code)
    }

    fn start(&self, words: &[&str]) -> Child {
        self.once(words).spawn().unwrap()
    }

    /// Lines in a file that a command adds one to whenever it runs.
    fn count(&self, name: &str) -> usize {
        fs::read_to_string(self.path(name)).map_or(0, |text| text.lines().count())
    }

    /// Names that only unfinished outputs have.
    fn unfinished(&self) -> Vec<String> {
        let names = fs::read_dir(self.0.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with('.')).collect()
    }

    #[track_caller]
    fn wait_for(&self, name: &str) -> String {
        until(&format!("{name} is there"), || {
            fs::read_to_string(self.path(name)).ok().filter(|text| text.ends_with('\n'))
        })
    }
}

struct Ran {
    out: String,
    err: String,
}

impl Ran {
    #[track_caller]
    fn of(output: &Output, code: i32) -> Ran {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let ran = Ran { out: text(&output.stdout), err: text(&output.stderr) };
        assert_eq!(output.status.code(), Some(code), "\n{}\n{}", ran.out, ran.err);
        ran
    }

    #[track_caller]
    fn ended(child: Child, code: i32) -> Ran {
        Ran::of(&child.wait_with_output().unwrap(), code)
    }

    #[track_caller]
    fn said(self, part: &str) -> Ran {
        assert!(self.err.contains(part), "{part:?} is not in\n{}", self.err);
        self
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap()
    }
}

#[track_caller]
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let mut looks = PATIENCE.as_millis() / LOOK_EVERY.as_millis();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(looks > 0, "never: {what}");
        looks -= 1;
        std::thread::sleep(LOOK_EVERY);
    }
}

fn signal(name: &str, process: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), process.trim()]).status().unwrap();
    assert!(sent.success());
}

/// Whether a process is there and not merely waiting to be buried.
fn is_alive(process: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.trim())).unwrap_or_default();
    stat.rsplit(") ").next().and_then(|rest| rest.chars().next()).is_some_and(|state| state != 'Z' && state != 'X')
}

const HOLD: &str = "until [ -e go ]; do sleep 0.02; done";

#[test]
fn a_command_is_run_once_and_what_it_printed_is_replayed() {
    let place = Place::new();
    let words = ["--", "sh", "-c", "echo x >> count; echo hello; echo aside >&2"];
    let first = place.run(&words, 0).said("aside");
    assert_eq!(first.out, "hello\n");
    let second = place.run(&words, 0).said("not run again");
    assert_eq!((second.out.as_str(), place.count("count")), ("hello\n", 1));
    assert!(!second.err.contains("aside"));
    for other in [&["--name", "other"][..], &["--param", "day=2"], &["--force"]] {
        assert_eq!(place.run(&[other, &words].concat(), 0).out, "hello\n");
    }
    assert_eq!(place.count("count"), 4);
    assert_eq!(place.run(&words, 0).out, "hello\n", "after --force too");
    assert_eq!(place.count("count"), 4);
}

#[test]
fn a_changed_input_is_another_run() {
    let place = Place::new();
    fs::write(place.path("in"), "1").unwrap();
    fs::create_dir(place.path("tiles")).unwrap();
    fs::write(place.path("tiles/a"), "1").unwrap();
    let words = ["--key-from", "in", "tiles", "--", "sh", "-c", "cat in tiles/a; echo x >> count"];
    assert_eq!(place.run(&words, 0).out, "11");
    fs::write(place.path("in"), "2").unwrap();
    assert_eq!(place.run(&words, 0).out, "21");
    fs::write(place.path("tiles/a"), "2").unwrap();
    assert_eq!(place.run(&words, 0).out, "22");
    fs::write(place.path("in"), "1").unwrap();
    fs::write(place.path("tiles/a"), "1").unwrap();
    assert_eq!((place.run(&words, 0).out.as_str(), place.count("count")), ("11", 3), "it was there before");
    place.run(&["--key-from", "nothing", "--", "true"], 125).said("--key-from nothing").said("hint:");
}

#[test]
fn of_several_runners_one_runs_and_all_report_the_same() {
    let place = Place::new();
    let script = format!("echo x >> count; {HOLD}; echo result $$");
    let words = ["--", "sh", "-c", script.as_str()];
    let runners: Vec<Child> = (0..4).map(|_| place.start(&words)).collect();
    until("one runs", || (place.count("count") == 1).then_some(()));
    place.run(&[&["--no-wait"], &words[..]].concat(), 75).said("somebody else");
    let busy = place.run(&[&["--no-wait", "--json"], &words[..]].concat(), 75).json();
    assert_eq!(busy["outcome"], "busy");
    fs::write(place.path("go"), "").unwrap();
    let printed: Vec<String> = runners.into_iter().map(|runner| Ran::ended(runner, 0).out).collect();
    assert!(printed[0].starts_with("result ") && printed.iter().all(|out| *out == printed[0]), "{printed:?}");
    assert_eq!(place.count("count"), 1);
}

#[test]
fn a_killed_runner_takes_its_command_along_and_is_taken_over() {
    let place = Place::new();
    let script = format!("echo half > \"$GEONCE_OUTPUT\"; (echo $$; echo x >> count; exec sleep 600) & wait; {HOLD}");
    let script = format!("echo $$ > pid; if [ -e go ]; then echo whole > \"$GEONCE_OUTPUT\"; exit; fi; {script}");
    let words = ["--lease", "2s", "--output", "out", "--", "sh", "-c", script.as_str()];
    let mut runner = place.start(&words);
    let command = place.wait_for("pid");
    until("everything was started", || (place.count("count") == 1).then_some(()));
    assert_eq!(place.unfinished().len(), 1);
    let group = group_of(&command);
    assert_eq!(group.len(), 3, "guard, shell, sleep: {group:?}");
    runner.kill().unwrap();
    runner.wait().unwrap();
    until("the command is ended", || group.iter().all(|process| !is_alive(process)).then_some(()));
    assert!(!place.path("out").exists());
    fs::write(place.path("go"), "").unwrap();
    place.run(&words, 0);
    assert_eq!(fs::read_to_string(place.path("out")).unwrap(), "whole\n");
    assert_eq!(place.unfinished(), Vec::<String>::new(), "what the first left is removed");
}

/// The processes of the group that a process is in.
fn group_of(process: &str) -> Vec<String> {
    let group = |process: &str| {
        let stat = fs::read_to_string(format!("/proc/{}/stat", process.trim())).ok()?;
        stat.rsplit(") ").next()?.split(' ').nth(2).map(str::to_owned)
    };
    let wanted = group(process).unwrap();
    let all = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    all.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .filter(|name| group(name).as_ref() == Some(&wanted))
        .collect()
}

#[test]
fn a_runner_that_lost_its_lease_ends_its_command_and_renames_nothing() {
    let place = Place::new();
    // The second runner's command is told from the first's by a file.
    let script = "if [ -e second ]; then echo second > {output}; exit; fi; \
                  echo first > {output}; echo $$ > pid; exec sleep 600";
    let words = ["--lease", "1s", "--output", "out", "--", "sh", "-c", script];
    let first = place.start(&words);
    let command = place.wait_for("pid");
    let runner = first.id().to_string();
    signal("STOP", &runner);
    fs::write(place.path("second"), "").unwrap();
    place.run(&words, 0);
    assert!(is_alive(&command), "a frozen runner ends nothing");
    signal("CONT", &runner);
    Ran::ended(first, 0).said("another runner has taken over").said("not run again");
    assert!(!is_alive(&command));
    assert_eq!(fs::read_to_string(place.path("out")).unwrap(), "second\n");
    assert_eq!(place.unfinished(), Vec::<String>::new());
}

#[test]
fn a_command_that_fails_is_retried_until_it_succeeds() {
    let place = Place::new();
    let script = "echo x >> count; echo attempt $GEONCE_ATTEMPT; [ $(wc -l < count) -ge 3 ]";
    let words = ["--backoff", "1ms", "--json", "--", "sh", "-c", script];
    let ran = place.run(&words, 0).said("attempt 2 of 4 failed (exit_1)").said("attempt 3\n");
    let ran = ran.json();
    assert_eq!((&ran["outcome"], &ran["attempts"], &ran["exit_code"]), (&"ran".into(), &3.into(), &0.into()));
    assert_eq!(ran["stdout"]["text"], "attempt 3\n", "what the attempt that succeeded printed");
    let again = place.run(&words, 0).json();
    assert_eq!((&again["outcome"], &again["attempts"]), (&"replayed".into(), &3.into()));
    assert_eq!((&again["event"], &again["stdout"]), (&ran["event"], &ran["stdout"]));
}

#[test]
fn a_command_that_keeps_failing_is_dead_until_somebody_says_otherwise() {
    let place = Place::new();
    let words = ["--retries", "1", "--backoff", "1ms", "--", "sh", "-c", "echo x >> count; echo no room >&2; exit 3"];
    place.run(&words, 3).said("is dead after 2 failures (exit_3)");
    assert_eq!(place.count("count"), 2);
    place.run(&words, 3).said("no room").said("--retry");
    let dead = place.run(&[&["--json"], &words[..]].concat(), 3).json();
    assert_eq!((&dead["outcome"], &dead["cause"]["code"]), (&"dead".into(), &"exit_3".into()));
    assert_eq!(place.count("count"), 2, "not run");
    place.run(&[&["--retry", "--retries", "0"], &words[2..]].concat(), 3);
    assert_eq!(place.count("count"), 3);
    place.run(&[&["--param", "input=changed"], &words[..]].concat(), 3);
    assert_eq!(place.count("count"), 5);
    let mut list = Command::new(env!("CARGO_BIN_EXE_geonce"));
    let list = list.args(["dead", "list"]).current_dir(place.0.path()).output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    assert!(list.contains("exit_3") && list.contains("@once") && list.contains("--retry"), "{list}");
}

#[test]
fn what_time_may_mend_is_tried_again_by_the_next_call() {
    let place = Place::new();
    let words = ["--retries", "0", "--", "sh", "-c", "echo x >> count; [ -e go ] || exit 75"];
    place.run(&words, 75);
    place.run(&words, 75);
    fs::write(place.path("go"), "").unwrap();
    place.run(&words, 0);
    assert_eq!(place.count("count"), 3);
}

#[test]
fn outputs_appear_whole_and_are_made_again_when_they_change() {
    let place = Place::new();
    fs::write(place.path("out.txt"), "before\n").unwrap();
    let script = "cat out.txt > seen; echo made > {output}; echo side > {output}.aux; echo x >> count; [ -e go ]";
    let words = ["--retries", "0", "--output", "out.txt", "--", "sh", "-c", script];
    place.run(&words, 1);
    assert_eq!(fs::read_to_string(place.path("out.txt")).unwrap(), "before\n", "it failed");
    assert_eq!(place.unfinished(), Vec::<String>::new());
    fs::write(place.path("go"), "").unwrap();
    let retry = [&["--retry", "--json"], &words[..]].concat();
    let ran = place.run(&retry, 0).json();
    assert_eq!(fs::read_to_string(place.path("seen")).unwrap(), "before\n", "while it runs");
    assert_eq!(fs::read_to_string(place.path("out.txt")).unwrap(), "made\n");
    assert_eq!(fs::read_to_string(place.path("out.txt.aux")).unwrap(), "side\n", "what goes along");
    assert_eq!((&ran["outputs"][0]["path"], &ran["outputs"][0]["bytes"]), (&"out.txt".into(), &5.into()));
    place.run(&words, 0).said("not run again");
    fs::write(place.path("out.txt"), "spoilt").unwrap();
    place.run(&words, 0).said("run again: out.txt has changed");
    fs::write(place.path("out.txt"), "maDe\n").unwrap();
    place.run(&words, 0).said("run again: out.txt has changed");
    fs::remove_file(place.path("out.txt")).unwrap();
    place.run(&words, 0).said("run again: out.txt is missing");
    place.run(&words, 0).said("not run again");
    assert_eq!((fs::read_to_string(place.path("out.txt")).unwrap().as_str(), place.count("count")), ("made\n", 5));
    assert_eq!(place.unfinished(), Vec::<String>::new());
}

#[test]
fn a_command_is_given_its_outputs_by_word_placeholder_or_variable() {
    let place = Place::new();
    fs::write(place.path("in"), "content").unwrap();
    place.run(&["--output", "a", "--", "cp", "in", "a"], 0);
    place.run(&["--output", "b", "c", "--", "sh", "-c", "cp in {output:1}; cp in {output:2}; [ ! -e b ]"], 0);
    place.run(&["--output", "d", "e", "--", "sh", "-c", "cp in $GEONCE_OUTPUT; cp in $GEONCE_OUTPUT_2"], 0);
    // Elsewhere, by a word that is part of another.
    fs::create_dir(place.path("deep")).unwrap();
    place.run(&["--output", "deep/f", "--", "dd", "if=in", "of={output}"], 0);
    for name in ["a", "b", "c", "d", "e", "deep/f"] {
        assert_eq!(fs::read_to_string(place.path(name)).unwrap(), "content", "{name}");
    }
    place.run(&["--output", "z", "--", "true"], 125).said("did not write z");
    place.run(&["--output", "z", "--", "cp", "in", "{output:2}"], 125).said("there is no such output");
    place.run(&["--output", "nowhere/z", "--", "cp", "in", "nowhere/z"], 125).said("its folder is not there");
    place.run(&["--output", "z", "z", "--", "true"], 125).said("twice");
}

#[test]
fn a_folder_is_an_output_too() {
    let place = Place::new();
    let words =
        ["--output", "tiles", "--", "sh", "-c", "mkdir -p {output}/1; cp count {output}/1/tile; echo x >> count"];
    fs::write(place.path("count"), "").unwrap();
    place.run(&words, 0);
    place.run(&words, 0).said("not run again");
    fs::write(place.path("tiles/1/more"), "").unwrap();
    place.run(&words, 0).said("tiles has changed");
    assert_eq!(fs::read_to_string(place.path("tiles/1/tile")).unwrap(), "x\n");
    assert!(!place.path("tiles/1/more").exists());
    assert_eq!(place.unfinished(), Vec::<String>::new());
}

#[test]
fn signals_reach_the_command_and_do_not_make_it_dead() {
    for (name, trapped, code) in [("TERM", false, 143), ("INT", false, 130), ("HUP", false, 129), ("TERM", true, 7)] {
        let place = Place::new();
        let trap = if trapped { "trap 'echo told > told; exit 7' TERM; " } else { "" };
        let script = format!("{trap}[ -e go ] && exit; echo $$ > pid; while :; do sleep 0.02; done");
        let words = ["--json", "--output", "out", "--", "sh", "-c", script.as_str()];
        let runner = place.start(&words);
        place.wait_for("pid");
        signal(name, &runner.id().to_string());
        let ran = Ran::ended(runner, code);
        assert_eq!(ran.json()["outcome"], "interrupted", "{name}");
        assert_eq!(place.path("told").exists(), trapped);
        fs::write(place.path("go"), "").unwrap();
        // It can be run at once, and ends well, although it makes nothing.
        place.run(&["--no-wait", "--output", "out", "--", "sh", "-c", script.as_str()], 125).said("did not write out");
    }
}

#[test]
fn a_signal_that_is_to_be_ignored_is_ignored() {
    let place = Place::new();
    let geonce = env!("CARGO_BIN_EXE_geonce");
    let script = format!("trap '' HUP; exec {geonce} once -- sh -c 'echo $$ > pid; {HOLD}; echo well'");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).current_dir(place.0.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let runner = shell.spawn().unwrap();
    let command = place.wait_for("pid");
    signal("HUP", &runner.id().to_string());
    signal("HUP", &command);
    fs::write(place.path("go"), "").unwrap();
    assert_eq!(Ran::ended(runner, 0).out, "well\n");
}

#[test]
fn who_waits_can_be_told_to_stop() {
    let place = Place::new();
    let script = format!("echo $$ > pid; {HOLD}");
    let words = ["--", "sh", "-c", script.as_str()];
    let first = place.start(&words);
    place.wait_for("pid");
    let mut second = place.once(&words).spawn().unwrap();
    let mut said = [0; 7];
    std::io::Read::read_exact(second.stderr.as_mut().unwrap(), &mut said).unwrap();
    assert_eq!(&said, b"geonce:");
    signal("TERM", &second.id().to_string());
    assert_eq!(second.wait().unwrap().code(), Some(143));
    fs::write(place.path("go"), "").unwrap();
    Ran::ended(first, 0);
}

#[test]
fn exit_codes_are_those_of_shells() {
    let place = Place::new();
    fs::write(place.path("text"), "no program").unwrap();
    place.run(&["--", "no-such-command-here"], 127).said("no-such-command-here");
    place.run(&["--", "./text"], 126).said("cannot be run");
    place.run(&["--retries", "0", "--", "sh", "-c", "kill -9 $$"], 137).said("signal_9");
    place.run(&["--retries", "0", "--", "sh", "-c", "exit 200"], 200);
    place.run(&["--"], 125);
    place.run(&["--lease", "1ms", "--", "true"], 125).said("a lease lasts");
    place.run(&["--param", "novalue", "--", "true"], 125).said("NAME=VALUE");
    place.run(&["--store", "nothing:", "--", "true"], 125).said("hint:");
    place.run(&["--help"], 0);
}

#[test]
fn long_output_is_replayed_too() {
    let place = Place::new();
    let words = ["--", "seq", "1", "20000"];
    let first = place.run(&words, 0).out;
    assert!(first.len() > 100_000);
    let second = place.run(&words, 0);
    assert!(second.out == first && second.err.lines().count() == 1, "{}", second.err);
    let words = ["--", "seq", "1", "300000"];
    let first = place.run(&words, 0).out;
    let second = place.run(&words, 0).said("printed 1988895 bytes; these are the last");
    assert!(first.ends_with(&second.out) && second.out.ends_with("300000\n"), "{}", second.out);
}

#[test]
fn standard_input_is_the_commands() {
    let place = Place::new();
    fs::write(place.path("in"), "from outside\n").unwrap();
    let mut command = place.once(&["--key-from", "in", "--", "cat"]);
    let output = command.stdin(fs::File::open(place.path("in")).unwrap()).output().unwrap();
    assert_eq!(Ran::of(&output, 0).out, "from outside\n");
}

#[test]
fn what_a_command_leaves_running_does_not_hold_anybody_up() {
    let place = Place::new();
    let ran = place.run(&["--", "sh", "-c", "sleep 600 & echo $! > pid; echo done"], 0);
    assert_eq!(ran.out, "done\n");
    let left = fs::read_to_string(place.path("pid")).unwrap();
    assert!(is_alive(&left), "it is the command's own business");
    signal("KILL", &left);
}

#[test]
fn a_raster_is_warped_once() {
    let place = Place::new();
    let gdal = |words: &[&str]| {
        let output = Command::new(words[0]).args(&words[1..]).current_dir(place.0.path()).output().unwrap();
        Ran::of(&output, 0).out
    };
    let corners = ["-a_srs", "EPSG:4326", "-a_ullr", "13", "53", "14", "52"];
    gdal(&[&["gdal_create", "-of", "GTiff", "-outsize", "64", "64", "-burn", "7"], &corners[..], &["in.tif"]].concat());
    let warp = ["--key-from", "in.tif", "--output", "out.tif", "--"];
    let warp = [&warp[..], &["gdalwarp", "-q", "-t_srs", "EPSG:3857", "in.tif", "out.tif"]].concat();
    place.run(&warp, 0);
    assert!(gdal(&["gdalinfo", "out.tif"]).contains("Pseudo-Mercator"));
    let made = fs::metadata(place.path("out.tif")).unwrap().modified().unwrap();
    place.run(&warp, 0).said("not run again");
    assert_eq!(fs::metadata(place.path("out.tif")).unwrap().modified().unwrap(), made);
    // Formats of several files: all of them come out under the name that was asked for.
    let translate = ["--output", "out.png", "--", "gdal_translate", "-q", "-of", "PNG", "-co", "WORLDFILE=YES"];
    place.run(&[&translate[..], &["out.tif", "out.png"]].concat(), 0);
    for name in ["out.png", "out.wld", "out.png.aux.xml"] {
        assert!(place.path(name).exists(), "{name}");
    }
    assert_eq!(place.unfinished(), Vec::<String>::new());
    assert!(Path::new(&place.path("geonce-data/geonce.db")).exists());
}
