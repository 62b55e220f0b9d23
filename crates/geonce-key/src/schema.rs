//! The JSON Schema of a policy's `accept`, checked on the payload as delivered.

use crate::{Code, Error, Result};

/// A compiled schema.
pub(crate) struct Schema {
    #[cfg(feature = "schema")]
    validator: jsonschema::Validator,
}

#[cfg(feature = "schema")]
impl Schema {
    pub(crate) fn new(text: &str) -> Result<Schema> {
        let refuse = |message: String| Error::new(Code::PolicyInvalid, "", format!("accept.schema: {message}"));
        let schema: serde_json::Value = serde_json::from_str(text).map_err(|e| refuse(e.to_string()))?;
        let validator = jsonschema::validator_for(&schema).map_err(|e| refuse(e.to_string()))?;
        Ok(Schema { validator })
    }

    pub(crate) fn check(&self, payload: &[u8]) -> Result<()> {
        let refuse = |pointer: String, message: String| Err(Error::new(Code::AcceptSchema, pointer, message));
        let value: serde_json::Value = match serde_json::from_slice(payload) {
            Ok(value) => value,
            Err(error) => return refuse(String::new(), error.to_string()),
        };
        match self.validator.validate(&value) {
            Ok(()) => Ok(()),
            Err(error) => refuse(error.instance_path().to_string(), error.to_string()),
        }
    }
}

#[cfg(not(feature = "schema"))]
impl Schema {
    pub(crate) fn new(_text: &str) -> Result<Schema> {
        Err(Error::new(Code::PolicyInvalid, "", "accept.schema needs the crate's `schema` feature"))
    }

    pub(crate) fn check(&self, _payload: &[u8]) -> Result<()> {
        Err(Error::new(Code::AcceptSchema, "", "accept.schema needs the crate's `schema` feature"))
    }
}
