//! Settings of a source that say how its requests are laid out: `preset`, `map`, and what they bring along.

use super::file::{self, PresetWord};
use super::{Failure, Reading};
use geonce::intake::preset::{Map, MapPlace};
use geonce::intake::{Identify, Preset};
use geonce_key::policy::Accept;
use geonce_key::{Kind, Pointer};

impl Reading<'_> {
    /// How requests of the source `name` are laid out.
    pub(super) fn preset(&self, name: &str, source: &file::Source) -> Result<Preset, Failure> {
        let at = |setting: &str| format!("source.{name}.{setting}");
        let envelope = source.feature.as_ref().is_some_and(|feature| !feature.is_empty());
        let preset = match (source.preset, &source.map) {
            (Some(PresetWord::Geojson) | None, Some(map)) => Preset::Map(Box::new(self.map(map, &at("map"))?)),
            (Some(_), Some(_)) => {
                let failure = self.refuse(&at("map"), "there are both preset and map");
                return Err(failure.hint("a preset knows where things are; take one of them away"));
            }
            (Some(word), None) => preset(word),
            (None, None) => Preset::Geojson,
        };
        if envelope && preset != Preset::Geojson {
            return Err(self
                .refuse(&at("feature"), &format!("there are both feature and {}", preset.name()))
                .hint("pointers of a source with a preset or a map start at the Feature that is made"));
        }
        Ok(preset)
    }

    fn map(&self, map: &file::Map, path: &str) -> Result<Map, Failure> {
        let pointer = |name: &str, text: &Option<String>| {
            let text = text.as_deref().filter(|text| !text.is_empty());
            text.map(|text| self.at(&format!("{path}.{name}"), Pointer::parse(text))).transpose()
        };
        let (lon, lat) = (pointer("lon", &map.lon)?, pointer("lat", &map.lat)?);
        let place = match (lon, lat, pointer("wkt", &map.wkt)?, pointer("wkb", &map.wkb)?) {
            (Some(lon), Some(lat), None, None) => MapPlace::Point { lon, lat },
            (None, None, Some(wkt), None) => MapPlace::Wkt(wkt),
            (None, None, None, Some(wkb)) => MapPlace::Wkb(wkb),
            _ => {
                let failure = self.refuse(path, "a map says where the geometry is, in one way");
                return Err(failure.hint("lon and lat, or wkt, or wkb"));
            }
        };
        let items = pointer("items", &map.items)?;
        Ok(Map { items, place, id: pointer("id", &map.id)?, properties: pointer("properties", &map.properties)? })
    }
}

fn preset(word: PresetWord) -> Preset {
    match word {
        PresetWord::Geojson => Preset::Geojson,
        PresetWord::Arcgis => Preset::Arcgis,
        PresetWord::Survey123 => Preset::Survey123,
        PresetWord::Cloudevents => Preset::Cloudevents,
        PresetWord::Wis2 => Preset::Wis2,
        PresetWord::Traccar => Preset::Traccar,
        PresetWord::Owntracks => Preset::Owntracks,
        PresetWord::Tile38 => Preset::Tile38,
        PresetWord::Github => Preset::Github,
    }
}

/// Whose id names events where the source does not say.
pub(super) fn identify(preset: &Preset) -> Identify {
    preset.defaults().identify.unwrap_or(Identify::Auto)
}

/// Every type, and none at all, where the preset has events without geometry and the source lists no types.
pub(super) fn accept(accept: &mut Accept, preset: &Preset) {
    if accept.types.is_none() && preset.defaults().without_geometry {
        let kinds = [Kind::Point, Kind::LineString, Kind::Polygon];
        let kinds = kinds.into_iter().chain(kinds.map(Kind::multi)).map(|kind| kind.name().to_owned());
        accept.types = Some(kinds.chain(["GeometryCollection".to_owned(), "null".to_owned()]).collect());
    }
}
