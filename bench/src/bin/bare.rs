//! The ceiling over any HTTP receiver on hyper: reads the whole body, answers 202 with as many bytes as the gateway does,
//! remembers nothing.
//!
//! Usage: `bare ADDRESS`

use bytes::Bytes;
use geonce_bench::arguments::Arguments;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use tokio::net::TcpListener;

const ANSWER: &[u8] =
    br#"{"outcome":"accepted","event":"evt_01JD8Q00000000000000000000","key":"g1_AAAAAAAAAAAAAAAAAAAAAA"}"#;

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let read = request.into_body().collect().await;
    let mut response = Response::new(Full::new(Bytes::from_static(ANSWER)));
    *response.status_mut() = if read.is_ok() { StatusCode::ACCEPTED } else { StatusCode::BAD_REQUEST };
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    Ok(response)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind(Arguments::read()?.word(0)?).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(
            hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(stream), hyper::service::service_fn(answer)),
        );
    }
}
