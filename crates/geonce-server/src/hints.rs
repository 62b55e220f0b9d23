//! What helps a dead event: a sentence for each code, from `docs/errors.md` where that knows it.

use geonce::event::{Cause, Class};

/// The published list of codes and their meanings.
const ERRORS: &str = include_str!("../../../docs/errors.md");

/// What would help an event that died of this.
pub(crate) fn for_cause(cause: &Cause) -> String {
    let code = &cause.code;
    match (cause.class, code.as_str()) {
        (_, "conflict") => "same id, other content: compare both with geonce explain".to_owned(),
        (_, "collision") => "one key, two contents: keep this event and report it".to_owned(),
        (_, code) if code.starts_with("exit_") || code.starts_with("signal_") || code == "output_missing" => {
            "a command failed: mend it, then give geonce once the same words and --retry".to_owned()
        }
        (class, code) if code.starts_with("fetch_") && !class.is_transient() => {
            meaning(code).map_or_else(|| code.replace('_', " "), str::to_owned)
        }
        (Class::Unavailable | Class::Resource, _) => {
            format!("once the sink is well again: geonce dead replay --code {}", crate::show::escaped(code))
        }
        (Class::Permission, _) => "give the sink's user its rights, then replay".to_owned(),
        (Class::Internal, _) => "a fault of geonce: keep this event and report it".to_owned(),
        _ if is_mendable(code) => {
            let what = meaning(code).map_or_else(|| code.replace('_', " "), str::to_owned);
            format!("{what}; geonce dead repair --code {code} --dry-run")
        }
        _ => meaning(code).map_or_else(|| format!("{}: see geonce dead show", cause.class), str::to_owned),
    }
}

/// Whether a repair is known for what died of this.
fn is_mendable(code: &str) -> bool {
    let of_geometry = geonce_key::validity::ProblemCode::ALL.iter().any(|problem| problem.as_str() == code);
    of_geometry || matches!(code, "geojson_ring_unclosed" | "geojson_bounds" | "geojson_elevation")
}

/// What the published list says about a code.
fn meaning(code: &str) -> Option<&'static str> {
    ERRORS.lines().find_map(|line| {
        let (name, meaning) = line.strip_prefix("| `")?.split_once("` | ")?;
        (name == code).then(|| meaning.trim_end_matches('|').trim())
    })
}

#[cfg(test)]
mod tests {
    use super::{for_cause, meaning};
    use geonce::event::{Cause, Class};

    #[test]
    fn every_code_of_a_refusal_has_a_meaning() {
        for code in geonce_key::Code::ALL {
            assert!(meaning(code.as_str()).is_some_and(|meaning| meaning.len() > 5), "{}", code.as_str());
        }
        assert_eq!(meaning("nothing_like_it"), None);
    }

    #[test]
    fn transient_causes_are_replayed() {
        let hint = for_cause(&Cause::new(Class::Unavailable, "sink_timeout", ""));
        assert!(hint.ends_with("geonce dead replay --code sink_timeout"), "{hint}");
        let hint = for_cause(&Cause::new(Class::Geometry, "self_intersection", ""));
        assert!(hint.ends_with("geonce dead repair --code self_intersection --dry-run"), "{hint}");
        assert_eq!(
            for_cause(&Cause::new(Class::Geometry, "geojson_empty", "")),
            "A geometry, part or path holds nothing"
        );
    }
}
