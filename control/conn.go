package control

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// ErrClosed is returned for a frame that is sent after the end of sending.
var ErrClosed = errors.New("channel closed")

// CloseError is the reason that the peer sent with its Close frame; empty on success. An
// end that closes a connection with a CloseError sends its code, whose meaning is that of
// the protocol; the code of other errors is 0.
type CloseError struct {
	Reason string
	Code   uint64
}

func (e *CloseError) Error() string { return e.Reason }

const (
	// writeLen is the most that is written with one deadline: after a deadline that
	// expires, a TLS connection cannot be used.
	writeLen = 256 << 10
	// closeTimeout limits the sending of a Close frame.
	closeTimeout = time.Second
)

// Stream is a net.Conn, or an os.File of a socket.
type Stream interface {
	io.ReadWriteCloser
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// Config has the limits of a connection. A user may change it between reads.
type Config struct {
	// Limits are those of frames from the peer.
	Limits Limits
	// Names are those of the protocol's own kinds, for errors.
	Names []string
	// QueueBytes is the number of queued bytes from which Queue blocks.
	QueueBytes int
	// MaxQueueBytes is the number of queued bytes from which the peer is considered
	// dead; 0 for no limit.
	MaxQueueBytes int
	// IdleTimeout limits the time until a whole frame arrives; 0 for no limit.
	IdleTimeout time.Duration
	// Heartbeat is the interval in which Run sends a Ping; 0 for none. Serve ignores
	// pings if it is set.
	Heartbeat time.Duration
	// WriteTimeout limits the time in which the peer reads nothing; 0 for no limit.
	WriteTimeout time.Duration
	// KeepWaiting is called after WriteTimeout. If it returns true, another WriteTimeout
	// starts. nil is false.
	KeepWaiting func() bool
}

// Conn is a connection that carries frames.
type Conn struct {
	Config
	stream  Stream
	reader  *bufio.Reader
	writing sync.Mutex // held while writing to the stream

	mu          sync.Mutex
	changed     sync.Cond // something was queued, sent, or closed
	queue       []byte    // encoded frames
	queueClosed bool      // nothing can be queued any more
	reason      error     // why the connection was closed
}

// New returns a connection that carries frames on a stream.
func New(s Stream, c Config) *Conn {
	conn := &Conn{Config: c, stream: s, reader: bufio.NewReaderSize(s, 64<<10)}
	conn.changed.L = &conn.mu
	return conn
}

// Read reads the next frame. It returns io.EOF if the peer has closed the channel,
// io.ErrUnexpectedEOF if it has done so within a frame, ErrProtocol for a frame that Limits does
// not allow, a CloseError for a Close frame, and os.ErrDeadlineExceeded after IdleTimeout, if that
// is set.
func (c *Conn) Read() (Frame, error) {
	if c.IdleTimeout > 0 {
		if err := c.stream.SetReadDeadline(time.Now().Add(c.IdleTimeout)); err != nil {
			return Frame{}, err
		}
	}
	f, err := read(c.reader, c.Limits, c.Names)
	switch {
	case c.IdleTimeout > 0 && errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("no data from the other end for %v: %w", c.IdleTimeout, err)
	case err == nil && f.Kind == Close:
		err = &CloseError{string(f.Body), f.Num}
	}
	return f, err
}

// Serve reads frames and calls handle for each. If Heartbeat is set, both ends send pings, and
// Serve ignores those of the peer. It returns when reading or handle fails: the reason of Close if
// that was called, else the error.
func (c *Conn) Serve(handle func(Frame) error) error {
	for {
		f, err := c.Read()
		if err == nil && (f.Kind != Ping || c.Heartbeat == 0) {
			err = handle(f)
		}
		if err != nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.reason != nil {
				return c.reason
			}
			return err
		}
	}
}

// Write writes a frame at once, before frames that are still queued.
func (c *Conn) Write(f Frame) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.write(f.Append(nil))
}

// write writes b to the stream. It fails if the peer reads nothing for WriteTimeout and KeepWaiting
// does not return true. After Close, it fails at Close's deadline. The caller holds c.writing.
func (c *Conn) write(b []byte) error {
	for len(b) > 0 {
		closing, err := c.startWriteTimeout()
		if err != nil {
			return err
		}
		n, err := c.stream.Write(b[:min(len(b), writeLen)])
		b = b[n:]
		if errors.Is(err, os.ErrDeadlineExceeded) && !closing {
			peerReads := n > 0
			if peerReads || c.KeepWaiting != nil && c.KeepWaiting() {
				err = nil
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// startWriteTimeout sets the deadline of the next write to WriteTimeout from now. If Close
// was called, it keeps the deadline of Close and reports closing.
func (c *Conn) startWriteTimeout() (closing bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reason == nil && c.WriteTimeout > 0 {
		err = c.stream.SetWriteDeadline(time.Now().Add(c.WriteTimeout))
	}
	return c.reason != nil, err
}

// Queue queues a frame for Run. It blocks while the queue would exceed QueueBytes; an empty
// queue takes a frame of any size. The goroutine that reads the connection must call QueueNow
// instead: two ends that both block in Queue would wait for each other.
func (c *Conn) Queue(f Frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.queueClosed && len(c.queue) > 0 && len(c.queue)+headerLen+len(f.Body) > c.QueueBytes {
		c.changed.Wait()
	}
	return c.enqueue(f)
}

// QueueNow queues a frame for Run without blocking. If more than MaxQueueBytes would be
// queued, the peer does not read: QueueNow then drops the queue and closes the connection.
func (c *Conn) QueueNow(f Frame) error {
	c.mu.Lock()
	var err error
	full := c.MaxQueueBytes > 0 && len(c.queue)+headerLen+len(f.Body) > c.MaxQueueBytes
	if full {
		c.queue = nil
		err = fmt.Errorf("the other end does not read: %d bytes are queued", c.MaxQueueBytes)
	} else {
		err = c.enqueue(f)
	}
	c.mu.Unlock()
	if full {
		c.Close(err)
	}
	return err
}

// enqueue appends a frame to the queue. The caller holds c.mu.
func (c *Conn) enqueue(f Frame) error {
	if c.queueClosed {
		return ErrClosed
	}
	c.queue = f.Append(c.queue)
	c.changed.Broadcast()
	return nil
}

// CloseQueue makes later calls of Queue and QueueNow fail with ErrClosed. Run returns when it
// has written the queued frames.
func (c *Conn) CloseQueue() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queueClosed = true
	c.changed.Broadcast()
}

// Run writes queued frames and heartbeats until the queue is closed and empty, or until
// writing fails. It leaves the queue closed and empty.
func (c *Conn) Run() error {
	if c.Heartbeat > 0 {
		done := make(chan struct{})
		defer close(done)
		go c.queuePings(done)
	}
	defer c.takeQueue(nil)
	defer c.CloseQueue()
	var batch []byte
	for {
		c.mu.Lock()
		for len(c.queue) == 0 && !c.queueClosed {
			c.changed.Wait()
		}
		c.mu.Unlock()
		c.writing.Lock()
		batch = c.takeQueue(batch[:0])
		err := c.write(batch)
		c.writing.Unlock()
		if err != nil || len(batch) == 0 {
			return err
		}
		if cap(batch) > max(c.QueueBytes, writeLen) {
			batch = nil // do not keep the memory of a large frame
		}
	}
}

// takeQueue removes and returns the queued frames. The empty slice spare becomes the queue,
// so that its memory is reused.
func (c *Conn) takeQueue(spare []byte) (batch []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	batch, c.queue = c.queue, spare
	c.changed.Broadcast()
	return batch
}

// queuePings queues a Ping in each Heartbeat interval until done is closed.
func (c *Conn) queuePings(done <-chan struct{}) {
	t := time.NewTicker(c.Heartbeat)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			_ = c.QueueNow(Frame{Kind: Ping}) // a closed queue ends Run
		case <-done:
			return
		}
	}
}

// Close writes the queued frames and a Close frame with the reason, and closes the stream. A
// peer that does not read delays it by at most closeTimeout. Serve returns the reason of the
// first call; later calls have no effect.
func (c *Conn) Close(reason error) {
	c.mu.Lock()
	first := c.reason == nil
	var deadlineErr error
	if first {
		c.reason = reason
		deadlineErr = c.stream.SetWriteDeadline(time.Now().Add(closeTimeout))
	}
	c.queueClosed = true
	c.changed.Broadcast()
	c.mu.Unlock()
	if !first {
		return
	}
	// A goroutine that is writing ends by the deadline. On a pipe without deadlines it may block
	// for ever: while it writes, close the stream without a Close frame.
	if deadlineErr == nil {
		c.writing.Lock()
		c.writeReason(reason)
	} else if c.writing.TryLock() {
		c.writeReason(reason)
	}
	_ = c.stream.Close()
}

// writeReason writes the queued frames and a Close frame with the reason, and with its code if it
// is a CloseError. It ignores errors. The caller holds c.writing, which writeReason releases.
func (c *Conn) writeReason(reason error) {
	defer c.writing.Unlock()
	text, closeErr := reason.Error(), new(CloseError) // with code 0 if reason is another error
	errors.As(reason, &closeErr)
	last := Frame{Kind: Close, Num: closeErr.Code, Body: []byte(text[:min(len(text), MaxReason)])}
	_, _ = c.stream.Write(last.Append(c.takeQueue(nil)))
}
