//! Fields in which duplicates differ from their events. A duplicate is not delivered, so whatever it says in such a
//! field is lost: that is right for the time of sending, and wrong for a new value.

use super::{Advice, View, percent};
use crate::show::count;
use geonce::store::OTHER_FIELDS;
use serde_json::{Value, json};

/// Fields that are named.
const NAMED_MAX: usize = 5;

pub(super) fn advise(view: &View<'_>) -> Vec<Advice> {
    let (compared, differs) = (view.traffic.compared, &view.traffic.differs);
    if view.drift == 0 {
        return Vec::new();
    }
    let mut fields: Vec<(&str, u64)> = differs.iter().map(|(field, &count)| (field.as_str(), count)).collect();
    fields.sort_by_key(|&(field, count)| (std::cmp::Reverse(count), field));
    let figures = json!({
        "duplicates_that_differ": view.drift,
        "compared": compared,
        "fields": fields.iter().map(|&(field, count)| (field.to_owned(), count.into())).collect::<serde_json::Map<String, Value>>(),
    });
    let number = format!("{} duplicates differ from their events outside the identity", count(view.drift));
    // What stands for several fields could not be named in a policy.
    let Some(&(first, _)) = fields.iter().find(|(field, _)| *field != OTHER_FIELDS) else {
        let message = match compared {
            0 => format!("{number}; in which fields is not known: a few are compared while payloads are kept"),
            _ => format!(
                "{number}, but not in their fields: numbers on both sides of a rounding line, or another policy before"
            ),
        };
        return vec![view.advice(
            "drift",
            message,
            "nothing is lost by numbers; for fields, store.keep_payload",
            figures,
        )];
    };
    let named: Vec<String> = fields
        .iter()
        .take(NAMED_MAX)
        .map(|&(field, count)| format!("{field} ({})", percent(count, compared)))
        .collect();
    let more = fields.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let message = format!("{number}; of {} that were compared, in {}{more}", count(compared), named.join(", "));
    let hint = format!(
        "a duplicate is not delivered: if {first} tells when, version = \"{first}\"; if it tells events apart, add it to identity; else leave it so"
    );
    vec![view.advice("drift", message, hint, figures)]
}
