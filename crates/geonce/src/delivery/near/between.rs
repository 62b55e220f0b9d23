//! What the near check would say of two payloads, whether or not either was ever recorded: for explaining, not for deciding.
//!
//! The rules are those that workers go by. Nothing is asked of a store, so events between the two are not thought of.

use super::{Action, Near, Rules, Scope, Spoken};
use crate::clock::Timestamp;
use crate::store::SPOT_BODY_BYTES_MAX;
use geonce_key::near::{self, Answer, Body, Budget, Measure, Rule, THRESHOLD_M_MAX};
use geonce_key::policy::{Field, Policy};
use geonce_key::{Input, Reader, Result};
use serde_json::{Value, json};

/// The smallest share of common area that is told of.
const SHARE_MIN: f64 = 1e-6;

/// A payload, and what its source and its sink say.
pub struct Side<'a> {
    /// What the source looks for.
    pub near: &'a Near,
    /// Its policy.
    pub policy: &'a Policy,
    /// The fields that name an entity at the sink, where it says so.
    pub entity: Option<&'a [Field]>,
    /// The payload.
    pub input: Input<'a>,
    /// When it came, where it did.
    pub received: Option<Timestamp>,
}

/// Why two payloads are not compared at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Apart {
    /// Their scopes differ: identity, entity or source.
    Scope,
    /// More than the period is between their arrivals.
    Period,
    /// A measure says near, but they are farther apart than is looked (`within`).
    Place,
    /// One has no geometry that can be compared, or too large a one, or says that its entity is gone.
    Geometry,
}

impl Apart {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Apart::Scope => "scope",
            Apart::Period => "period",
            Apart::Place => "place",
            Apart::Geometry => "geometry",
        }
    }
}

/// What one measure says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// The measure.
    pub measure: Measure,
    /// What is near at most, in metres; or at least, as a share.
    pub threshold: f64,
    /// What was measured, where that could be.
    pub value: Option<f64>,
    /// Whether it says near.
    pub is_near: bool,
}

/// What the check would say of two payloads.
#[derive(Clone, Debug, PartialEq)]
pub struct Between {
    /// Why they are not compared, if they are not.
    pub apart: Option<Apart>,
    /// Every measure of the later one's source.
    pub measured: Vec<Measured>,
    /// What would become of the later one, where it is near.
    pub action: Option<Action>,
    /// Which events are compared.
    pub scope: Scope,
}

/// What the check would say of `b`, had `a` been applied shortly before; nothing where it has no measure. A payload that is
/// refused has no answer.
pub fn between(a: &Side<'_>, b: &Side<'_>) -> Result<Option<Between>> {
    let (Some(rules_a), Some(rules)) = (Rules::new(a.near, a.policy), Rules::new(b.near, b.policy)) else {
        return Ok(None);
    };
    let (place_a, place_b) = (a.place(&rules_a)?, b.place(&rules)?);
    let (Some((scope_a, one)), Some((scope_b, other))) = (&place_a, &place_b) else {
        let apart = Some(Apart::Geometry);
        return Ok(Some(Between { apart, measured: Vec::new(), action: None, scope: b.near.scope }));
    };
    let mut budget = Budget::new(rules.policy.limits.work_max);
    let measured: Vec<Measured> =
        rules.measures.iter().map(|rule| measured(&one.body, &other.body, rule, &mut budget)).collect();
    let late = a.received.zip(b.received).is_some_and(|(a, b)| a.since(b).max(b.since(a)) > rules.near.period);
    let found = rules.cells.around(&other.body).contains(&rules.cells.home(&one.body));
    let apart = match () {
        () if scope_a != scope_b || scope_b.is_none() => Some(Apart::Scope),
        () if late => Some(Apart::Period),
        () if !found && measured.iter().any(|one| one.is_near) => Some(Apart::Place),
        () => None,
    };
    let is_near = apart.is_none() && measured.iter().any(|one| one.is_near);
    let action = is_near.then(|| rules.action(&other.rest, &one.rest));
    Ok(Some(Between { apart, measured, action, scope: rules.near.scope }))
}

impl Side<'_> {
    /// In what scope the payload is compared, and what with; nothing where it is near to nothing.
    fn place(&self, rules: &Rules) -> Result<Option<(Option<[u8; 16]>, Spoken)>> {
        let mut reader = Reader::new(self.policy, self.entity)?;
        let (feature, rest) = reader.read_with_rest(self.input, &self.near.ignore)?;
        if feature.deleted {
            return Ok(None);
        }
        let Ok(body) = Body::new(&feature, self.policy.approximate_crs) else { return Ok(None) };
        let spoken = Spoken { key: [0; 16], rest, body };
        if spoken.bytes().len() > SPOT_BODY_BYTES_MAX {
            return Ok(None);
        }
        Ok(Some((rules.scope(feature.entity.as_ref(), rest), spoken)))
    }
}

/// What a measure says; where it is not near, how far it is from that, as far as this can be said.
fn measured(a: &Body, b: &Body, rule: &Rule, budget: &mut Budget) -> Measured {
    let Rule { measure, threshold, .. } = *rule;
    let answer = near::compare(b, a, rule, budget);
    let value = match answer {
        Answer::Near(value) => Some(value),
        Answer::Apart => {
            let widest = if measure == Measure::Iou { SHARE_MIN } else { THRESHOLD_M_MAX };
            match near::compare(b, a, &Rule { threshold: widest, ..*rule }, budget) {
                // Wide open, a measure may pair parts otherwise; what would contradict the answer is not told.
                Answer::Near(value) if (value < threshold) == (measure == Measure::Iou) => Some(value),
                _ => None,
            }
        }
        Answer::Incomparable | Answer::OverBudget => None,
    };
    Measured { measure, threshold, value, is_near: matches!(answer, Answer::Near(_)) }
}

impl Between {
    /// Whether the later one is near to the earlier.
    pub fn is_near(&self) -> bool {
        self.action.is_some()
    }

    /// For machines.
    pub fn json(&self) -> Value {
        let measured = |one: &Measured| json!({"measure": one.measure.name(), "value": one.value, "threshold": one.threshold, "near": one.is_near});
        json!({
            "near": self.is_near(),
            "action": self.action.map(Action::as_str),
            "not_compared": self.apart.map(Apart::as_str),
            "scope": self.scope.as_str(),
            "measures": self.measured.iter().map(measured).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Apart, Between, Measure, Near, Policy, Scope, Side, Timestamp, between};
    use crate::delivery::near::Action;
    use geonce_key::Input;
    use std::time::Duration;

    /// About seven millimetres of latitude, and two metres.
    const SEVEN_MILLIMETRES: f64 = 6.3e-8;
    const TWO_METRES: f64 = 1.8e-5;

    fn point(offset: f64, name: &str) -> String {
        let latitude = 52.0 + offset;
        format!(
            r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[13.4,{latitude}]}},"properties":{{"name":"{name}"}}}}"#
        )
    }

    fn centimetre() -> Near {
        Near {
            measures: vec![(Measure::Vertex, 0.01)],
            within_metres: 50.0,
            period: Duration::from_mins(10),
            scope: Scope::Identity,
            action: Action::Drop,
            ignore: Vec::new(),
        }
    }

    fn check(near: &Near, texts: [&str; 2], arrivals_millis: Option<[i64; 2]>) -> Between {
        let policy = Policy::default();
        let side = |i: usize| Side {
            near,
            policy: &policy,
            entity: None,
            input: Input::json(texts[i].as_bytes()),
            received: arrivals_millis.map(|arrivals| Timestamp::from_millis(arrivals[i])),
        };
        between(&side(0), &side(1)).unwrap().unwrap()
    }

    #[test]
    fn seven_millimetres_are_near_to_a_centimetre_and_two_metres_are_not() {
        let here = point(0.0, "a");
        let near = check(&centimetre(), [&here, &point(SEVEN_MILLIMETRES, "a")], None);
        assert_eq!((near.action, near.apart), (Some(Action::Drop), None));
        assert!((0.006..0.008).contains(&near.measured[0].value.unwrap()), "{near:?}");
        let far = check(&centimetre(), [&here, &point(TWO_METRES, "a")], None);
        assert_eq!(far.action, None);
        assert!((1.9..2.1).contains(&far.measured[0].value.unwrap()), "{far:?}");
        assert!(!far.measured[0].is_near);
    }

    #[test]
    fn what_is_of_another_scope_or_came_much_later_is_not_compared() {
        let (here, there) = (point(0.0, "a"), point(SEVEN_MILLIMETRES, "b"));
        let other = check(&centimetre(), [&here, &there], None);
        assert_eq!((other.action, other.apart), (None, Some(Apart::Scope)));
        assert!(other.measured[0].is_near, "how near they are is told all the same");
        let whole = Near { scope: Scope::Source, ..centimetre() };
        assert_eq!(check(&whole, [&here, &there], None).action, Some(Action::Flag), "they differ outside the geometry");
        let again = point(SEVEN_MILLIMETRES, "a");
        let period = centimetre().period.as_millis().try_into().unwrap();
        assert_eq!(check(&centimetre(), [&here, &again], Some([0, period])).action, Some(Action::Drop));
        for arrivals in [[0, period + 1], [period + 1, 0]] {
            assert_eq!(check(&centimetre(), [&here, &again], Some(arrivals)).apart, Some(Apart::Period));
        }
    }

    #[test]
    fn areas_are_compared_only_where_they_are_looked_for() {
        let square = |x: f64| {
            let (w, e) = (x, x + 0.001);
            format!(r#"{{"type":"Polygon","coordinates":[[[{w},0],[{e},0],[{e},0.001],[{w},0.001],[{w},0]]]}}"#)
        };
        let iou = Near { measures: vec![(Measure::Iou, 0.9)], ..centimetre() };
        let same = check(&iou, [&square(0.0), &square(0.000_01)], None);
        assert_eq!(same.action, Some(Action::Drop));
        let half = check(&iou, [&square(0.0), &square(0.000_5)], None);
        assert_eq!(half.action, None);
        assert!((0.3..0.4).contains(&half.measured[0].value.unwrap()), "{half:?}");
        let apart = check(&iou, [&square(0.0), &square(1.0)], None);
        assert_eq!((apart.action, apart.apart, apart.measured[0].value), (None, None, None));
        let close = Near { within_metres: 0.01, ..iou };
        let unfound = check(&close, [&square(0.0), &square(0.000_01)], None);
        assert_eq!((unfound.action, unfound.apart), (None, Some(Apart::Place)));
    }
}
