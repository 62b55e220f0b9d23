//! `/in/{source}`: events that are posted, the challenge of `ArcGIS`, the handshake of `CloudEvents`.
//!
//! A signature is checked over the body as it was received, before it is inflated: that is what senders sign.

use super::answer::{self, Answer, Counts, Problem, code};
use super::body::{self, Coding, Content};
use super::connection::{Phase, Watch};
use super::route::percent_decode_text;
use super::{Gateway, Served};
use geonce::clock::Stopwatch;
use geonce::intake::{Arrival, FeatureReceipt, GAP, Receipt, Refused, Source};
use geonce::signature::{self, CHALLENGE_BYTES_MAX, Verified};
use geonce_key::split::Format;
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Request, StatusCode};

/// The methods that a source takes.
pub(super) const ALLOW: &str = "POST, OPTIONS";
const ALLOW_CHALLENGE: &str = "POST, GET, OPTIONS";

const REQUEST_ORIGIN: HeaderName = HeaderName::from_static("webhook-request-origin");
const ALLOWED_ORIGIN: HeaderName = HeaderName::from_static("webhook-allowed-origin");
const ALLOWED_RATE: HeaderName = HeaderName::from_static("webhook-allowed-rate");

/// Events are coming in.
pub(super) async fn post(gateway: &Gateway, served: &Served, watch: &Watch, request: Request<Incoming>) -> Answer {
    let took = Stopwatch::start();
    let (outcome, answer) = match receive(gateway, served, watch, request).await {
        Ok(receipt) => {
            let counts = Counts::of(&receipt.features);
            gateway.metrics.looked_up(counts.accepted, counts.duplicate + counts.conflict, receipt.storing);
            if counts.refused > 0 {
                log_refused(gateway, served, &receipt);
            }
            served.metrics.keyed(receipt.keying);
            let fresh = if served.route.fresh_status == 200 { StatusCode::OK } else { StatusCode::ACCEPTED };
            log_gaps(served, &receipt);
            if gateway.api.stream.is_followed() {
                gateway.api.stream.received(&served.route.source.name, &receipt.features);
            }
            (counts.outcome(), answer::receipt(&receipt, &counts, fresh, served.route.source.preset.answer()))
        }
        Err(problem) => {
            if problem.code() != code::UNVERIFIED
                && let Some(more) = gateway.metrics.refusals_logged.now()
            {
                let source = &*served.route.source.name;
                tracing::info!(
                    source,
                    code = problem.code(),
                    pointer = problem.pointer(),
                    more,
                    "a request was refused"
                );
            }
            (problem.outcome(), problem.answer())
        }
    };
    served.metrics.count(outcome, took.elapsed());
    answer
}

async fn receive(
    gateway: &Gateway,
    served: &Served,
    watch: &Watch,
    request: Request<Incoming>,
) -> Result<Receipt, Problem> {
    let (mut head, incoming) = request.into_parts();
    let route = &served.route;
    let stated = body::coding(&head.headers).and_then(|coding| Ok((coding, body::content(&head.headers)?)));
    let (coding, content) = stated.inspect_err(|_| {
        if !incoming.is_end_stream() {
            watch.leave_unread();
        }
    })?;
    let mut received = body::read(incoming, route.body_bytes_max, &gateway.budget, watch).await?;
    watch.enter_for(Phase::Handling, route.ack_within);
    let source = &route.source;
    let verified = verify(gateway, source, &head, &received.bytes)?;
    let recorded = async {
        // Nothing is read of a body but what the signature vouches for.
        let signed = verified.as_ref().map(|verified| verified.body.clone());
        let part = signed.filter(|signed| *signed != (0..received.bytes.len()));
        if let Some(part) = part.clone() {
            received.bytes = received.bytes.slice(part);
        }
        if coding == Coding::Gzip {
            received = body::inflate(received, route.body_bytes_max, &gateway.budget).await?;
        }
        let nothing = received.bytes.is_empty();
        if nothing && !source.preset.takes_nothing() {
            return Err(Problem::empty());
        }
        let content = if nothing { Content::Payload(Format::Json) } else { content };
        let (body, format) = body::payload(received.bytes.clone(), content, part.is_some())?;
        let delivery = source.delivery_id(&head.headers, verified.as_ref()).map_err(|fault| Problem::from(&fault))?;
        let headers = std::mem::take(&mut head.headers);
        let receipt = gateway.intake.receive(source, Arrival { body, format, delivery, headers }).await;
        receipt.map_err(|refused| {
            log_store(gateway, &refused);
            if let Refused::Payload(fault) = &refused {
                gateway.api.stream.refused(&source.name, fault, None);
            }
            Problem::from(&refused)
        })
    };
    watch.within(recorded).await.unwrap_or_else(|| Err(Problem::late()))
}

/// Checks the signature; `None` where the source needs none.
fn verify(gateway: &Gateway, source: &Source, head: &Parts, body: &[u8]) -> Result<Option<Verified>, Problem> {
    let Some(verifier) = &source.verify else { return Ok(None) };
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    let request = signature::Request { method: head.method.as_str(), path, headers: &head.headers, body };
    let verified = verifier.verify(&request, gateway.clock.now()).map_err(|cause| {
        // The sender must not learn the cause; whoever runs the gateway needs it.
        if let Some(more) = gateway.metrics.refusals_logged.now() {
            tracing::info!(source = &*source.name, code = code::UNVERIFIED, %cause, more, "a request was refused");
        }
        Problem::unverified()
    })?;
    Ok(Some(verified))
}

/// What a store says belongs into the log, not into an answer.
fn log_store(gateway: &Gateway, refused: &Refused) {
    if let Refused::Store(error) = refused
        && let Some(more) = gateway.metrics.store_failures_logged.now()
    {
        tracing::error!(%error, kind = error.kind().as_str(), hint = error.hint_text(), more, "the store failed");
    }
}

/// A gap in what a sender announces is for whoever runs the gateway: senders do not read answers.
fn log_gaps(served: &Served, receipt: &Receipt) {
    for feature in &receipt.features {
        let FeatureReceipt::Accepted { event, warnings, .. } = feature else { continue };
        for gap in warnings.iter().filter(|warning| warning.code == GAP) {
            tracing::warn!(source = &*served.route.source.name, %event, code = gap.code, "{}", gap.message);
        }
    }
}

fn log_refused(gateway: &Gateway, served: &Served, receipt: &Receipt) {
    let first = receipt.features.iter().find_map(|feature| match feature {
        FeatureReceipt::Refused { fault, .. } => Some(fault),
        _ => None,
    });
    if let Some(fault) = first
        && let Some(more) = gateway.metrics.refusals_logged.now()
    {
        let (source, code) = (&*served.route.source.name, &*fault.code);
        tracing::info!(source, code, pointer = fault.pointer, more, "a payload was refused");
    }
}

/// `ArcGIS` asks whether we know the secret: `GET /in/{source}?crc_token=…`.
pub(super) fn challenge(served: &Served, request: &Request<Incoming>) -> Answer {
    let query = request.uri().query().unwrap_or_default();
    let Some(token) = query.split('&').find_map(|pair| pair.strip_prefix("crc_token=")) else {
        return Problem::method(ALLOW).answer();
    };
    let Some(verifier) = &served.route.source.verify else { return Problem::method(ALLOW).answer() };
    let token = percent_decode_text(token).filter(|token| token.len() <= CHALLENGE_BYTES_MAX);
    match token.and_then(|token| verifier.challenge(&token)) {
        None => Problem::refused(code::CHALLENGE_INVALID, "this challenge is not one that the source answers").answer(),
        Some(response) => {
            let mut text = String::from("{\"response_token\":");
            answer::string(&mut text, &response);
            text.push('}');
            answer::respond(StatusCode::OK, HeaderValue::from_static("application/json"), text)
        }
    }
}

/// A `CloudEvents` sender asks whether it may send (HTTP 1.1 Web Hooks for Event Delivery, section 4). It may: what
/// it sends must still pass the source's verification.
pub(super) fn handshake(request: &Request<Incoming>) -> Answer {
    let mut answer = Answer::default();
    let headers = answer.headers_mut();
    headers.insert(header::ALLOW, HeaderValue::from_static(ALLOW_CHALLENGE));
    match request.headers().get(&REQUEST_ORIGIN) {
        None => *answer.status_mut() = StatusCode::NO_CONTENT,
        Some(origin) => {
            headers.insert(ALLOWED_ORIGIN, origin.clone());
            headers.insert(ALLOWED_RATE, HeaderValue::from_static("*"));
        }
    }
    answer
}
