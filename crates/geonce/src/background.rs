//! Threads whose work may wait: what has been acknowledged is durable, so delivering it yields to acknowledging more.

/// Lets the calling thread have what others leave of the processor. Where a system knows no priority of single
/// threads, nothing changes.
pub fn yield_to_others() {
    #[cfg(target_os = "linux")]
    {
        /// Enough to give way under load; on an idle machine it makes no difference.
        const NICE: i32 = 10;
        // On Linux this concerns the calling thread alone. Raising one's own nice value is always allowed.
        let _ = rustix::process::setpriority_process(None, NICE);
    }
}
