package agent

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// sender queues frames for the other end, in order. It does not block.
type sender interface {
	send(frame []byte)
}

// Timing has the timeouts of a connection. Zero values mean the defaults.
type Timing struct {
	// HandshakeTimeout limits the TLS handshake and the greetings; default 10 s.
	HandshakeTimeout time.Duration
	// HeartbeatInterval is the heartbeat interval; default 2 s.
	HeartbeatInterval time.Duration
	// IdleTimeout is the idle timeout: without data for this long, the other end is considered
	// dead; default 15 s.
	IdleTimeout time.Duration
	// CloseTimeout limits closing of devices; default 10 s.
	CloseTimeout time.Duration
}

func (t Timing) filled() Timing {
	for _, f := range []struct {
		d *time.Duration
		v time.Duration
	}{{&t.HandshakeTimeout, 10 * time.Second}, {&t.HeartbeatInterval, 2 * time.Second}, {&t.IdleTimeout, 15 * time.Second}, {&t.CloseTimeout, 10 * time.Second}} {
		if *f.d <= 0 {
			*f.d = f.v
		}
	}
	return t
}

const (
	// maxQueued limits the bytes in the send queue.
	maxQueued = 1 << 30
	// writeLen must be sent within the idle timeout.
	writeLen = 256 << 10
)

// link is a connection that carries frames. Any error closes it.
type link struct {
	conn   net.Conn
	reader *bufio.Reader
	timing Timing
	lost   chan struct{} // closed when the link is lost

	mu     sync.Mutex
	queued []byte
	spare  []byte
	wake   chan struct{}
	reason error // why the link was lost
}

func newLink(conn net.Conn, timing Timing) *link {
	return &link{
		conn: conn, reader: bufio.NewReaderSize(conn, 64<<10), timing: timing,
		lost: make(chan struct{}), wake: make(chan struct{}, 1),
	}
}

// send implements sender.
func (l *link) send(frame []byte) {
	seal(frame)
	l.mu.Lock()
	full := len(l.queued)+len(frame) > maxQueued
	if !full {
		l.queued = append(l.queued, frame...)
	}
	l.mu.Unlock()
	if full {
		l.fail(fmt.Errorf("the other end does not read: %d bytes are queued", maxQueued))
		return
	}
	select {
	case l.wake <- struct{}{}:
	default: // already signalled
	}
}

// write sends queued frames and heartbeats until the link is lost.
func (l *link) write() {
	beat := time.NewTicker(l.timing.HeartbeatInterval)
	defer beat.Stop()
	for {
		select {
		case <-l.wake:
		case <-beat.C:
			l.send(newFrame(frameHeartbeat, 0))
		case <-l.lost:
			return
		}
		if err := l.flush(); err != nil {
			l.fail(err)
			return
		}
	}
}

// flush writes the queue. Only one goroutine may call it at a time.
func (l *link) flush() error {
	l.mu.Lock()
	b := l.queued
	l.queued, l.spare = l.spare[:0], nil
	l.mu.Unlock()
	if len(b) == 0 {
		return nil
	}
	for rest := b; len(rest) > 0; {
		if err := l.conn.SetWriteDeadline(time.Now().Add(l.timing.IdleTimeout)); err != nil {
			return err
		}
		n, err := l.conn.Write(rest[:min(len(rest), writeLen)])
		if err != nil {
			return err
		}
		rest = rest[n:]
	}
	if cap(b) <= writeLen { // do not keep large buffers
		l.mu.Lock()
		l.spare = b
		l.mu.Unlock()
	}
	return nil
}

// read calls each for every frame until the link is lost, and returns the reason. It handles
// heartbeats itself.
func (l *link) read(each func(kind byte, body []byte) error) error {
	for {
		kind, body, err := l.next()
		switch {
		case err != nil:
		case kind == frameHeartbeat:
			continue
		case kind == frameClose:
			err = &closeError{string(body)}
		default:
			if err = each(kind, body); err != nil {
				l.closeWithReason(err)
			}
		}
		if err != nil {
			l.fail(err)
			return l.why()
		}
	}
}

// next reads one frame, within the idle timeout.
func (l *link) next() (kind byte, body []byte, err error) {
	if err := l.conn.SetReadDeadline(time.Now().Add(l.timing.IdleTimeout)); err != nil {
		return 0, nil, err
	}
	kind, body, err = readFrame(l.reader)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		err = fmt.Errorf("no data from the other end for %v: %w", l.timing.IdleTimeout, err)
	}
	return kind, body, err
}

// fail closes the link. The first reason is kept.
func (l *link) fail(reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reason != nil {
		return
	}
	l.reason = reason
	close(l.lost)
	l.conn.Close()
}

// closeWithReason sends the reason to the other end and closes the link.
func (l *link) closeWithReason(reason error) {
	text := reason.Error()
	l.send(append(newFrame(frameClose, len(text)), text...))
	l.mu.Lock()
	b := l.queued
	l.queued = nil
	l.mu.Unlock()
	// If another goroutine is writing, skip the message: the other end may not read.
	if l.conn.SetWriteDeadline(time.Now().Add(time.Second)) == nil {
		l.conn.Write(b) // best effort
	}
	l.fail(reason)
}

func (l *link) why() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reason
}

// closeError is the reason that the other end sent when it closed the connection.
type closeError struct{ reason string }

func (e *closeError) Error() string { return e.reason }
