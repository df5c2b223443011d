package control

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// ErrClosed is returned by Put on an Outbox that takes nothing more.
var ErrClosed = errors.New("channel closed")

// Outbox is a bounded queue of frames on their way to the peer. Many goroutines
// put, one runs it. So that no two readers can wait for each other, whoever
// reads a channel must never wait to write on it: frames that a reader itself
// causes are put with Force.
type SendQueue struct {
	mu     sync.Mutex
	change sync.Cond // something was queued, sent, or closed
	queue  []byte    // whole frames
	limit  int
	closed bool
}

// NewOutbox returns an outbox in which Put waits while limit bytes are queued.
func NewSendQueue(limit int) *SendQueue {
	o := &SendQueue{limit: limit}
	o.change.L = &o.mu
	return o
}

// Put queues f, and waits while the queue is full. A frame larger than the whole
// queue passes when the queue is empty.
func (o *SendQueue) Put(f Frame) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.closed && len(o.queue) > 0 && len(o.queue)+HeaderLen+len(f.Body) > o.limit {
		o.change.Wait()
	}
	return o.add(f)
}

// Force queues f at once, whatever is queued already. It is for frames of which
// the protocol itself allows only so many.
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
	o.change.Broadcast()
	return nil
}

// Close lets nothing more in. Run ends when it has sent what is queued.
func (o *SendQueue) Close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.change.Broadcast()
}

// Deadliner is a writer that can give up in time, as files of sockets can.
type DeadlineWriter interface {
	io.Writer
	SetWriteDeadline(time.Time) error
}

// Run writes what is put until Close, or until writing fails. If the peer reads
// nothing for as long as patience (without end if that is not positive), goOn is
// asked whether to wait for as long again.
func (o *SendQueue) Run(w DeadlineWriter, patience time.Duration, goOn func() bool) error {
	defer o.drop()
	var batch []byte
	for {
		o.mu.Lock()
		for len(o.queue) == 0 && !o.closed {
			o.change.Wait()
		}
		batch, o.queue = o.queue, batch[:0]
		o.change.Broadcast()
		o.mu.Unlock()
		if len(batch) == 0 {
			return nil
		}
		if err := WriteAll(w, batch, patience, goOn); err != nil {
			return err
		}
		if cap(batch) > o.limit {
			batch = nil // one large frame need not be paid for ever
		}
	}
}

// drop closes the outbox for good and lets go of what is queued.
func (o *SendQueue) drop() {
	o.Close()
	o.mu.Lock()
	o.queue = nil
	o.mu.Unlock()
}

// WriteAll writes b under the same terms as Run.
func WriteAll(w DeadlineWriter, b []byte, patience time.Duration, goOn func() bool) error {
	for len(b) > 0 {
		if patience > 0 {
			if err := w.SetWriteDeadline(time.Now().Add(patience)); err != nil {
				return err
			}
		}
		n, err := w.Write(b)
		b = b[n:]
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded) && (n > 0 || goOn()):
		default:
			return err
		}
	}
	return nil
}
