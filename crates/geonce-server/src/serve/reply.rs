//! The body of an answer: all there, or coming bit by bit.

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

/// What goes out after the head of an answer.
pub(crate) enum Reply {
    /// All of it.
    Whole(Full<Bytes>),
    /// What comes, until it ends.
    Flow(Flow),
}

/// A body without an end that is known.
pub(crate) type Flow = Pin<Box<dyn Body<Data = Bytes, Error = Infallible> + Send>>;

impl Reply {
    /// These bytes.
    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Reply {
        Reply::Whole(Full::new(bytes.into()))
    }
}

impl Default for Reply {
    fn default() -> Reply {
        Reply::Whole(Full::default())
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Reply::Whole(whole) => Pin::new(whole).poll_frame(context),
            Reply::Flow(flow) => flow.as_mut().poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Reply::Whole(whole) => whole.is_end_stream(),
            Reply::Flow(flow) => flow.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Reply::Whole(whole) => whole.size_hint(),
            Reply::Flow(flow) => flow.size_hint(),
        }
    }
}
