package launch

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/control"
)

const (
	// rankQueueBytes bounds the frames queued for the launcher; senders then block.
	rankQueueBytes = 1 << 20
	// maxQueuedBytes bounds the messages not yet received. Beyond it the connection
	// fails: blocking the reader would also block heartbeats.
	maxQueuedBytes = 64 << 20
	// messageOverhead is added to the size of each message.
	messageOverhead = 64
	// byeTimeout limits how long Close waits for the launcher's acknowledgement, and
	// commandTimeout how long it waits for a running command.
	byeTimeout     = 30 * time.Second
	commandTimeout = 2 * time.Second
	maxCommands    = 64
)

// Conn is this process's connection to its launcher.
type Conn struct {
	channel      control.Stream
	welcome      welcome
	onDisconnect func(error)

	frames  *control.Conn // on channel
	flushed chan struct{} // closed when the send queue has been written

	mu            sync.Mutex
	changed       chan struct{} // closed and replaced when anything below changes
	waits         map[*wait]struct{}
	inbox         inbox
	barriers      barriers
	reported      bool
	closing       bool
	byeAcked      bool
	disconnectErr error // set when the connection has ended
	requests      requests
	stops         chan bool // to a proxy: stop the ranks; true if a time limit is the reason
}

// barriers counts the barriers that this rank has entered, that the launcher has released, and
// that Barrier has returned from.
type barriers struct{ entered, released, passed uint64 }

// requests are the launcher's requests for dumps and commands.
type requests struct {
	onDump    func() string
	onCommand func(string) error
	commands  chan control.Frame // queued
	running   *string            // the command being run; nil if none
}

// newConn starts the goroutines of a connection after the handshake. onDisconnect is called with
// the reason if the connection ends before Close.
func newConn(channel control.Stream, frames *control.Conn, w welcome, onDisconnect func(error)) *Conn {
	frames.Limits, frames.IdleTimeout = w.launcherLimits(), w.IdleTimeout
	c := &Conn{
		channel: channel, frames: frames, welcome: w, onDisconnect: onDisconnect,
		stops:    make(chan bool, 1),
		flushed:  make(chan struct{}),
		changed:  make(chan struct{}),
		waits:    map[*wait]struct{}{},
		inbox:    inbox{from: make([]mailbox, w.Size)},
		requests: requests{commands: make(chan control.Frame, maxCommands)},
	}
	go func() {
		// Ignore the error: if writing fails, reading fails too. Only Close sets a deadline.
		_ = c.frames.Run()
		close(c.flushed)
	}()
	go c.read()
	go c.runCommands()
	return c
}

// Rank returns the rank of this process.
func (c *Conn) Rank() int { return c.welcome.Rank }

// Size returns the number of ranks.
func (c *Conn) Size() int { return c.welcome.Size }

// Host returns Spec.Host of this rank.
func (c *Conn) Host() string { return c.welcome.Host }

// Job returns Spec.Job of this rank.
func (c *Conn) Job() []byte { return c.welcome.Job }

// Mark sends a Marked event. It truncates text to 4 KiB.
func (c *Conn) Mark(text string) error {
	return c.put("mark", control.Frame{Kind: kindMark, Body: []byte(truncate(text, maxMark))})
}

// Sample sends v, as JSON of at most 64 KiB, to the launcher, which posts it as a Sampled event.
func (c *Conn) Sample(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("sample: %w", err)
	}
	if len(b) > maxSample {
		return fmt.Errorf("sample: %w: %d bytes, the limit is %d", ErrTooBig, len(b), maxSample)
	}
	return c.put("sample", control.Frame{Kind: kindSample, Body: b})
}

// Report sends the rank's result, Outcome.Report. It can be called once.
func (c *Conn) Report(b []byte) error {
	if len(b) > c.welcome.MaxReport {
		return fmt.Errorf("report: %w: %d bytes, the launcher's limit is %d", ErrTooBig, len(b), c.welcome.MaxReport)
	}
	c.mu.Lock()
	alreadySent := c.reported
	c.reported = true
	c.mu.Unlock()
	if alreadySent {
		return errors.New("report: it was sent already")
	}
	return c.put("report", control.Frame{Kind: kindReport, Body: b})
}

// Close informs the launcher that this rank has finished (nil) or failed (reason), waits
// for the acknowledgement, and closes the connection. The process must then exit,
// with a code other than 0 if it failed. A second call does nothing.
func (c *Conn) Close(reason error) error {
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		return nil
	}
	c.closing = true
	c.mu.Unlock()
	// Let a running command reply first. It times out if the command itself calls Close.
	_ = c.waitUntil("a command to complete", commandTimeout, func() (bool, error) { return c.requests.running == nil, nil })
	err := c.frames.QueueNow(control.Frame{Kind: control.Close, Body: errorText(reason)})
	if err == nil {
		err = c.waitUntil("the launcher to acknowledge Close", byeTimeout, func() (bool, error) {
			if c.byeAcked {
				return true, nil
			}
			return c.disconnectErr != nil, c.disconnectErr
		})
	}
	c.frames.CloseQueue()
	close(c.requests.commands)
	// Unblock the writer if the launcher does not read.
	_ = c.channel.SetWriteDeadline(time.Now())
	<-c.flushed
	if closeErr := c.channel.Close(); closeErr != nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}

// put queues a frame for the launcher. It blocks while the queue is full. Errors begin with op, the
// name of the operation.
func (c *Conn) put(op string, f control.Frame) error {
	c.mu.Lock()
	closing, ended := c.closing, c.disconnectErr
	c.mu.Unlock()
	switch {
	case closing:
		return fmt.Errorf("%s: %w", op, ErrClosed)
	case ended != nil:
		return fmt.Errorf("%s: %w", op, ended)
	}
	if err := c.frames.Queue(f); err != nil {
		return fmt.Errorf("%s: %w", op, ErrDisconnected)
	}
	return nil
}

// read handles frames of the launcher until the connection ends. A close frame (bye) acknowledges
// Close, or else rejects this rank.
func (c *Conn) read() {
	err := c.frames.Serve(c.handle)
	c.mu.Lock()
	closing := c.closing
	var bye *control.CloseError
	switch {
	case errors.As(err, &bye) && closing:
		c.byeAcked = true
		err = ErrDisconnected
	case errors.As(err, &bye):
		err = fmt.Errorf("%w: rejected by the launcher: %s", ErrDisconnected, bye.Reason)
	case errors.Is(err, io.EOF):
		err = ErrDisconnected
	default:
		err = fmt.Errorf("%w: %w", ErrDisconnected, err)
	}
	c.disconnectErr = err
	c.notifyWaiters()
	c.mu.Unlock()
	c.frames.CloseQueue()
	if !closing {
		c.onDisconnect(err)
	}
}

// handle handles one frame. It must not block, because that would delay heartbeats.
func (c *Conn) handle(f control.Frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.notifyWaiters()
	switch f.Kind {
	case control.Ping:
		_ = c.frames.QueueNow(control.Frame{Kind: control.Pong, Num: f.Num})
	case kindData:
		return c.inbox.deliver(f.Num, f.Body)
	case kindRankEnded:
		if f.Num < uint64(len(c.inbox.from)) {
			c.inbox.from[f.Num].ended = true
		}
	case kindBarrierDone:
		c.barriers.released = f.Num
	case kindDump:
		go c.replyDump(f.Num)
	case kindCommand:
		c.queueCommand(f)
	case kindStop:
		select {
		case c.stops <- f.Num != 0:
		default: // only the first one has an effect
		}
	}
	return nil
}

// errorText returns the text of an error, which is empty only for nil: an empty text means success.
func errorText(err error) []byte {
	if err == nil {
		return nil
	}
	return []byte(cmp.Or(truncate(fmt.Sprint(err), maxReason), fmt.Sprintf("%T", err)))
}

// truncate cuts s to limit bytes, and marks the cut.
func truncate(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	const cutMark = " … cut"
	return s[:limit-len(cutMark)] + cutMark
}
