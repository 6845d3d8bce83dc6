//! Waiting until some of many sockets can be read or written, however many there are: one call of the kernel.
//!
//! A read with a time-out would wait by itself, but for each socket on its own, and for a turn of the kernel's timer (4 to 10 ms) where
//! one millisecond was asked for.

use rustix::event::{PollFd, PollFlags, Timespec};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A pause before whoever asks again, where the kernel does not wait for us: it takes no core, and is not felt.
pub(super) const BREATH: Duration = Duration::from_millis(1);

/// What is waited for at one socket.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum For {
    /// Something to read, or its end.
    Reading,
    /// That, or room to write.
    Both,
    /// Room to write, or its end.
    Writing,
}

/// A socket to wait for.
pub(super) fn until<S: AsFd>(socket: &S, what: For) -> PollFd<'_> {
    let flags = match what {
        For::Reading => PollFlags::IN,
        For::Both => PollFlags::IN | PollFlags::OUT,
        For::Writing => PollFlags::OUT,
    };
    PollFd::new(socket, flags)
}

/// Waits until one of `sockets` is ready, or time is over; [`is_ready`] then says which are. Signals end it early, too.
pub(super) fn wait(sockets: &mut [PollFd<'_>], within: Option<Duration>) {
    let within = within.map(|within| {
        let within = within.min(Duration::from_secs(3600));
        Timespec { tv_sec: within.as_secs() as i64, tv_nsec: i64::from(within.subsec_nanos()) }
    });
    if rustix::event::poll(sockets, within.as_ref()).is_err() {
        // Interrupted, or the kernel has no memory for it: then nothing is ready, for as long as takes no core.
        sockets.iter_mut().for_each(PollFd::clear_revents);
        std::thread::sleep(BREATH);
    }
}

/// Whether there is something to do at a socket that was waited for.
pub(super) fn is_ready(socket: &PollFd<'_>) -> bool {
    !socket.revents().is_empty()
}

/// Waits for one socket.
pub(super) fn wait_for_one(stream: &TcpStream, what: For, within: Duration) {
    wait(&mut [until(stream, what)], Some(within));
}

/// Wakes a thread that waits for its sleeper, from another one.
pub(super) struct Waker(UnixStream);

/// What a thread waits for beside its sockets.
pub(super) struct Sleeper(UnixStream);

/// A waker and its sleeper. When the waker is dropped, its sleeper is ready for good.
pub(super) fn waker() -> std::io::Result<(Waker, Sleeper)> {
    let (waker, sleeper) = UnixStream::pair()?;
    waker.set_nonblocking(true)?;
    sleeper.set_nonblocking(true)?;
    Ok((Waker(waker), Sleeper(sleeper)))
}

impl Waker {
    pub(super) fn wake(&self) {
        // Where there is no room it has been woken, and where nobody sleeps any more nobody is to be woken.
        let _ = (&self.0).write(&[0]);
    }
}

impl Sleeper {
    /// Forgets that it was woken.
    pub(super) fn forget(&self) {
        while matches!((&self.0).read(&mut [0; 64]), Ok(64)) {}
    }
}

impl AsFd for Sleeper {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::time::Instant;

    #[test]
    fn a_waker_wakes_once_and_its_end_for_good() {
        let (waker, sleeper) = waker().unwrap();
        let woken = |within| {
            let mut sockets = [until(&sleeper, For::Reading)];
            wait(&mut sockets, Some(within));
            is_ready(&sockets[0])
        };
        let soon = Duration::from_millis(1);
        assert!(!woken(soon));
        // More often than the socket has room for.
        (0..1_000_000).for_each(|_| waker.wake());
        assert!(woken(soon));
        sleeper.forget();
        assert!(!woken(soon));
        let began = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                drop(waker);
            });
            assert!(woken(Duration::from_secs(60)));
        });
        assert!(began.elapsed() < Duration::from_secs(30));
        sleeper.forget();
        assert!(woken(soon), "whoever wakes is gone");
    }

    #[test]
    fn each_socket_is_waited_for_by_what_is_wanted_of_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let theirs = listener.accept().unwrap().0;
        let mut sockets =
            [until(&ours, For::Reading), until(&theirs, For::Writing), until(&theirs, For::Both)];
        wait(&mut sockets, Some(Duration::from_secs(60)));
        assert_eq!(
            sockets.each_ref().map(is_ready),
            [false, true, true],
            "nothing was sent, and there is room"
        );
        drop(theirs);
        wait_for_one(&ours, For::Reading, Duration::from_secs(60));
        assert_eq!((&ours).read(&mut [0; 8]).unwrap(), 0, "its end is something to read");
    }
}
