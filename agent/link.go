package agent

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// sender takes frames for the other end, in order. It does not block.
type sender interface {
	send(frame []byte)
}

// Timing is how the two ends of a connection look after each other. The zero value is
// how it should be.
type Timing struct {
	// Handshake is how long it may take until both ends know each other; 10 s if 0.
	Handshake time.Duration
	// Beat is how often an end says that it is there; 2 s if 0.
	Beat time.Duration
	// Silence is how long an end may say nothing, or be at one frame, before it is
	// taken for dead; 15 s if 0.
	Silence time.Duration
	// Grace is how long a device may take to be closed before that is given up; 10 s if
	// 0.
	Grace time.Duration
}

func (t Timing) filled() Timing {
	for _, f := range []struct {
		d *time.Duration
		v time.Duration
	}{{&t.Handshake, 10 * time.Second}, {&t.Beat, 2 * time.Second}, {&t.Silence, 15 * time.Second}, {&t.Grace, 10 * time.Second}} {
		if *f.d <= 0 {
			*f.d = f.v
		}
	}
	return t
}

const (
	// maxQueued is how many bytes may wait to be sent: all memory that may be told of at
	// once, if it is not too much.
	maxQueued = 1 << 30
	// writeLen is how much has to get through in the time that silence may last.
	writeLen = 256 << 10
)

// link is a connection with frames on it. It is lost when anything is wrong with it.
type link struct {
	conn   net.Conn
	reader *bufio.Reader
	timing Timing
	lost   chan struct{} // closed when it is

	mu     sync.Mutex
	queued []byte
	spare  []byte
	wake   chan struct{}
	reason error // of the loss
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
		l.lose(fmt.Errorf("the other end does not read: %d bytes wait for it", maxQueued))
		return
	}
	select {
	case l.wake <- struct{}{}:
	default: // it is
	}
}

// write sends what is queued, and signs of life, until the link is lost.
func (l *link) write() {
	beat := time.NewTicker(l.timing.Beat)
	defer beat.Stop()
	for {
		select {
		case <-l.wake:
		case <-beat.C:
			l.send(newFrame(frameBeat, 0))
		case <-l.lost:
			return
		}
		if err := l.flush(); err != nil {
			l.lose(err)
			return
		}
	}
}

// flush writes what is queued. Only one may at a time.
func (l *link) flush() error {
	l.mu.Lock()
	b := l.queued
	l.queued, l.spare = l.spare[:0], nil
	l.mu.Unlock()
	if len(b) == 0 {
		return nil
	}
	for rest := b; len(rest) > 0; {
		if err := l.conn.SetWriteDeadline(time.Now().Add(l.timing.Silence)); err != nil {
			return err
		}
		n, err := l.conn.Write(rest[:min(len(rest), writeLen)])
		if err != nil {
			return err
		}
		rest = rest[n:]
	}
	if cap(b) <= writeLen { // a large one is a rare one
		l.mu.Lock()
		l.spare = b
		l.mu.Unlock()
	}
	return nil
}

// read calls each with every frame until the link is lost, and returns why it was.
// Signs of life are for the link itself.
func (l *link) read(each func(kind byte, body []byte) error) error {
	for {
		kind, body, err := l.next()
		switch {
		case err != nil:
		case kind == frameBeat:
			continue
		case kind == frameBye:
			err = &byeError{string(body)}
		default:
			if err = each(kind, body); err != nil {
				l.bye(err)
			}
		}
		if err != nil {
			l.lose(err)
			return l.why()
		}
	}
}

// next reads one frame, which has to be there in time.
func (l *link) next() (kind byte, body []byte, err error) {
	if err := l.conn.SetReadDeadline(time.Now().Add(l.timing.Silence)); err != nil {
		return 0, nil, err
	}
	kind, body, err = readFrame(l.reader)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		err = fmt.Errorf("the other end has been silent for %v: %w", l.timing.Silence, err)
	}
	return kind, body, err
}

// lose ends the link for a reason. The first counts.
func (l *link) lose(reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reason != nil {
		return
	}
	l.reason = reason
	close(l.lost)
	l.conn.Close()
}

// bye tells the other end why, and ends the link.
func (l *link) bye(reason error) {
	text := reason.Error()
	l.send(append(newFrame(frameBye, len(text)), text...))
	l.mu.Lock()
	b := l.queued
	l.queued = nil
	l.mu.Unlock()
	// Whoever writes at this moment has the connection; we are not going to wait for
	// an end that does not read.
	if l.conn.SetWriteDeadline(time.Now().Add(time.Second)) == nil {
		l.conn.Write(b) // it is over anyway
	}
	l.lose(reason)
}

func (l *link) why() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reason
}

// byeError is what an end said when it ended the connection.
type byeError struct{ reason string }

// Error is what it said.
func (e *byeError) Error() string { return e.reason }
