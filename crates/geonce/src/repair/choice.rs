//! What a repair may do, by name, and in which order it does it.

use std::fmt;

/// The whole world: west, south, east, north.
const WORLD: [f64; 4] = [-180.0, -90.0, 180.0, 90.0];

/// One thing that a repair does. In this order, whatever order they are named in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Choice {
    /// Positions were written latitude first: exchanges both numbers.
    SwapAxes,
    /// Positions are of the system with this EPSG code, whatever the payload says.
    ReprojectFrom(u32),
    /// Drops the third numbers.
    DropZ,
    /// Closes rings whose last position is not their first.
    CloseRings,
    /// Cuts off what is outside west, south, east, north, in degrees.
    Clip([f64; 4]),
    /// Takes stretches away that a ring runs out and straight back.
    DropSpikes,
    /// Makes the shape valid on the grid (`docs/repair.md`).
    Grid,
}

impl Choice {
    /// Its place in the order.
    fn rank(&self) -> u8 {
        match self {
            Choice::SwapAxes => 0,
            Choice::ReprojectFrom(_) => 1,
            Choice::DropZ => 2,
            Choice::CloseRings => 3,
            Choice::Clip(_) => 4,
            Choice::DropSpikes => 5,
            Choice::Grid => 6,
        }
    }

    /// Reads a choice: `grid`, `close-rings`, `drop-spikes`, `swap-axes`, `reproject-from=25832`, `clip`,
    /// `clip=5/47/15/55` or `drop-z`. An underscore is as good as a hyphen.
    pub fn parse(text: &str) -> Result<Choice, String> {
        let text = text.trim().to_ascii_lowercase().replace('_', "-");
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text.as_str(), None),
        };
        let wrong = |what: &str| Err(format!("{text:?}: {what}"));
        match (name, value) {
            ("swap-axes", None) => Ok(Choice::SwapAxes),
            ("drop-z", None) => Ok(Choice::DropZ),
            ("close-rings", None) => Ok(Choice::CloseRings),
            ("drop-spikes", None) => Ok(Choice::DropSpikes),
            ("grid", None) => Ok(Choice::Grid),
            ("clip", None) => Ok(Choice::Clip(WORLD)),
            ("clip", Some(bounds)) => match bounds_of(bounds) {
                Some(bounds) => Ok(Choice::Clip(bounds)),
                None => wrong("bounds are west/south/east/north in degrees, such as clip=5/47/15/55"),
            },
            ("reproject-from", Some(code)) => {
                let digits = code.strip_prefix("epsg:").unwrap_or(code);
                match digits.parse().ok().and_then(geonce_key::crs::lookup) {
                    Some(crs) => Ok(Choice::ReprojectFrom(crs.code())),
                    None => wrong("is no coordinate system of the table"),
                }
            }
            ("reproject-from", None) => wrong("say which: reproject-from=25832"),
            _ => wrong(
                "is no repair; there are grid, close-rings, drop-spikes, swap-axes, reproject-from=EPSG, clip, drop-z",
            ),
        }
    }
}

fn bounds_of(text: &str) -> Option<[f64; 4]> {
    let numbers: Option<Vec<f64>> = text.split('/').map(|number| number.trim().parse().ok()).collect();
    let [west, south, east, north]: [f64; 4] = numbers?.try_into().ok()?;
    let within = west >= WORLD[0] && south >= WORLD[1] && east <= WORLD[2] && north <= WORLD[3];
    (within && west < east && south < north).then_some([west, south, east, north])
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::SwapAxes => f.write_str("swap-axes"),
            Choice::ReprojectFrom(code) => write!(f, "reproject-from={code}"),
            Choice::DropZ => f.write_str("drop-z"),
            Choice::CloseRings => f.write_str("close-rings"),
            Choice::Clip(bounds) if *bounds == WORLD => f.write_str("clip"),
            Choice::Clip([west, south, east, north]) => write!(f, "clip={west}/{south}/{east}/{north}"),
            Choice::DropSpikes => f.write_str("drop-spikes"),
            Choice::Grid => f.write_str("grid"),
        }
    }
}

/// What a repair does: each thing once, in its order.
#[derive(Clone, Debug, PartialEq)]
pub struct Choices(Vec<Choice>);

impl Choices {
    /// These, in their order; none, or one of them twice, is refused in words.
    pub fn new(choices: impl IntoIterator<Item = Choice>) -> Result<Choices, String> {
        let mut choices: Vec<Choice> = choices.into_iter().collect();
        choices.sort_by_key(Choice::rank);
        if choices.is_empty() {
            return Err("say what the repair is to do, such as grid".to_owned());
        }
        match choices.windows(2).find(|pair| pair[0].rank() == pair[1].rank()) {
            Some(pair) => Err(format!("{} and {} cannot both be", pair[0], pair[1])),
            None => Ok(Choices(choices)),
        }
    }

    /// Reads choices that are separated by commas.
    pub fn parse(text: &str) -> Result<Choices, String> {
        let choices: Result<Vec<Choice>, String> =
            text.split(',').filter(|one| !one.trim().is_empty()).map(Choice::parse).collect();
        Choices::new(choices?)
    }

    /// In the order in which they are done.
    pub fn iter(&self) -> impl Iterator<Item = Choice> + '_ {
        self.0.iter().copied()
    }

    pub(super) fn has(&self, choice: Choice) -> bool {
        self.0.contains(&choice)
    }

    pub(super) fn find<T>(&self, find: impl Fn(Choice) -> Option<T>) -> Option<T> {
        self.iter().find_map(find)
    }
}

impl fmt::Display for Choices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, choice) in self.0.iter().enumerate() {
            if place > 0 {
                f.write_str(",")?;
            }
            choice.fmt(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Choices;

    #[test]
    fn choices_are_read_and_put_in_their_order() {
        for (text, shown) in [
            ("grid", "grid"),
            ("Grid, close_rings", "close-rings,grid"),
            ("clip,reproject-from=EPSG:25832,swap-axes", "swap-axes,reproject-from=25832,clip"),
            ("clip=5/47/15.5/55,drop-z,drop-spikes", "drop-z,clip=5/47/15.5/55,drop-spikes"),
            ("reproject-from=900913", "reproject-from=3857"),
        ] {
            assert_eq!(Choices::parse(text).unwrap().to_string(), shown);
            assert_eq!(Choices::parse(shown).unwrap().to_string(), shown);
        }
    }

    #[test]
    fn what_is_no_choice_is_refused_in_words() {
        for text in [
            "",
            ",",
            "mend",
            "grid=1",
            "reproject-from",
            "reproject-from=1",
            "clip=1/2/3",
            "clip=9/0/1/5",
            "clip=0/0/1/nan",
            "grid,grid",
            "clip,clip=1/2/3/4",
        ] {
            assert!(Choices::parse(text).unwrap_err().len() > 10, "{text}");
        }
    }
}
