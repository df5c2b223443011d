package control

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// ErrClosed is returned by Put on a closed SendQueue.
var ErrClosed = errors.New("channel closed")

// SendQueue is a bounded queue of frames to the peer. Many goroutines call Put, and one
// calls Run. To avoid deadlock, a goroutine that reads a channel must not block on its
// send queue: it replies with PutUnbounded.
type SendQueue struct {
	mu      sync.Mutex
	changed sync.Cond // something was queued, sent, or closed
	queue   []byte    // encoded frames
	limit   int
	closed  bool
}

// NewSendQueue returns a queue in which Put blocks while limit bytes are queued.
func NewSendQueue(limit int) *SendQueue {
	o := &SendQueue{limit: limit}
	o.changed.L = &o.mu
	return o
}

// Put queues f. It blocks while the queue is full. A frame larger than the limit is
// queued when the queue is empty.
func (o *SendQueue) Put(f Frame) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.closed && len(o.queue) > 0 && len(o.queue)+HeaderLen+len(f.Body) > o.limit {
		o.changed.Wait()
	}
	return o.add(f)
}

// PutUnbounded queues f without blocking. It is for frames whose number the protocol
// limits.
func (o *SendQueue) PutUnbounded(f Frame) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.add(f)
}

func (o *SendQueue) add(f Frame) error {
	if o.closed {
		return ErrClosed
	}
	o.queue = f.Append(o.queue)
	o.changed.Broadcast()
	return nil
}

// Close makes Put fail. Run returns when it has sent the queued frames.
func (o *SendQueue) Close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.changed.Broadcast()
}

// DeadlineWriter is a writer with write deadlines, such as an os.File of a socket.
type DeadlineWriter interface {
	io.Writer
	SetWriteDeadline(time.Time) error
}

// Run writes queued frames until Close, or until writing fails. If the peer reads
// nothing for timeout (no limit if not positive), Run fails unless keepWaiting
// returns true, which starts another timeout.
func (o *SendQueue) Run(w DeadlineWriter, timeout time.Duration, keepWaiting func() bool) error {
	defer o.discard()
	var batch []byte
	for {
		o.mu.Lock()
		for len(o.queue) == 0 && !o.closed {
			o.changed.Wait()
		}
		batch, o.queue = o.queue, batch[:0]
		o.changed.Broadcast()
		o.mu.Unlock()
		if len(batch) == 0 {
			return nil
		}
		if err := WriteAll(w, batch, timeout, keepWaiting); err != nil {
			return err
		}
		if cap(batch) > o.limit {
			batch = nil // do not keep the memory of a large frame
		}
	}
}

// discard closes the queue and drops the frames that were not sent.
func (o *SendQueue) discard() {
	o.Close()
	o.mu.Lock()
	o.queue = nil
	o.mu.Unlock()
}

// WriteAll writes b. For timeout and keepWaiting see Run.
func WriteAll(w DeadlineWriter, b []byte, timeout time.Duration, keepWaiting func() bool) error {
	for len(b) > 0 {
		if timeout > 0 {
			if err := w.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
				return err
			}
		}
		n, err := w.Write(b)
		b = b[n:]
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded) && (n > 0 || keepWaiting()):
		default:
			return err
		}
	}
	return nil
}
