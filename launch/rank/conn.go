package rank

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/launch/internal/control"
)

const (
	// outboxBytes is how much may be on its way to the launcher before a call
	// waits.
	outboxBytes = 1 << 20
	// inboxBytes is how much may lie here unreceived. The launcher cannot be made
	// to wait, for heart-beats come the same way.
	inboxBytes = 64 << 20
	// messageOverhead is what a message costs besides its bytes.
	messageOverhead = 64
	// farewellPatience is how long Close waits for the launcher to take note.
	farewellPatience = 30 * time.Second
	// orderPatience is how long it waits for an order that is under way.
	orderPatience = 2 * time.Second
	maxOrders     = 64
)

// Conn is this process's connection to its launcher.
type Conn struct {
	file  *os.File
	terms control.WelcomeBody
	job   []byte
	lost  func(error)

	out     *control.SendQueue
	flushed chan struct{} // closed when everything put has been written
	orders  chan control.Frame

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced when anything below changes
	from     []mailbox
	held     int // bytes in all mailboxes
	entered  uint64
	released uint64
	reported bool
	closing  bool
	farewell bool
	ended    error // why nothing more will arrive
	onDump   func() string
	onOrder  func(string) error
	waits    map[*wait]struct{}
	order    *string // under way; nil if none
}

func newConn(f *os.File, t control.WelcomeBody, job []byte, o Options) *Conn {
	c := &Conn{
		file: f, terms: t, job: job, lost: o.OnDisconnect,
		out:     control.NewSendQueue(outboxBytes),
		flushed: make(chan struct{}),
		orders:  make(chan control.Frame, maxOrders),
		changed: make(chan struct{}),
		from:    make([]mailbox, t.Size),
		waits:   map[*wait]struct{}{},
	}
	if c.lost == nil {
		c.lost = exitLost
	}
	go func() {
		// Failure to write shows as failure to read; only the latter is acted on.
		// There is no deadline but that of Close.
		_ = c.out.Run(f, 0, func() bool { return false })
		close(c.flushed)
	}()
	go c.read()
	go c.obey()
	return c
}

func exitLost(err error) {
	fmt.Fprintf(os.Stderr, "control channel: %v; exiting\n", err)
	os.Exit(ExitDisconnected)
}

// Rank is this process's number, Size that of all.
func (c *Conn) Rank() int { return c.terms.Rank }

// Size is how many ranks there are.
func (c *Conn) Size() int { return c.terms.Size }

// Host is the name of the host that this rank runs on.
func (c *Conn) Host() string { return c.terms.Host }

// Job is what the launcher's caller handed to this rank.
func (c *Conn) Job() []byte { return c.job }

// Mark puts an event into the record of the run. A text of more than 4 KiB is
// cut.
func (c *Conn) Mark(text string) error {
	return c.put("mark", control.Frame{Kind: control.Mark, Body: []byte(cut(text, control.MaxMark))})
}

// Sample puts figures into the record of the run, as JSON of at most 64 KiB.
func (c *Conn) Sample(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("sample: %w", err)
	}
	if len(b) > control.MaxSample {
		return fmt.Errorf("sample: %w: %d bytes, the limit is %d", ErrTooBig, len(b), control.MaxSample)
	}
	return c.put("sample", control.Frame{Kind: control.Sample, Body: b})
}

// Report hands in the rank's result. It can be called once.
func (c *Conn) Report(b []byte) error {
	if len(b) > c.terms.MaxReport {
		return fmt.Errorf("report: %w: %d bytes, the launcher's limit is %d", ErrTooBig, len(b), c.terms.MaxReport)
	}
	c.mu.Lock()
	second := c.reported
	c.reported = true
	c.mu.Unlock()
	if second {
		return errors.New("report: there is one already")
	}
	return c.put("report", control.Frame{Kind: control.Report, Body: b})
}

// Close says that this rank is done (nil) or why it cannot go on, waits until the
// launcher has taken note, and closes the connection. The process should exit
// soon afterwards, with a code other than 0 if it failed. A second call does
// nothing.
func (c *Conn) Close(reason error) error {
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		return nil
	}
	c.closing = true
	c.mu.Unlock()
	// An order that leads to the end should be answered before it; but it may be
	// the order itself that calls Close.
	_ = c.await("an order to be carried out", orderPatience, func() (bool, error) { return c.order == nil, nil })
	f := control.Frame{Kind: control.Bye}
	if reason != nil {
		// An error without a text is an error still.
		f.Body = []byte(cut(fmt.Sprintf("%v", reason), control.MaxReason))
		if len(f.Body) == 0 {
			f.Body = fmt.Appendf(nil, "%T", reason)
		}
	}
	err := c.out.PutUnbounded(f)
	if err == nil {
		err = c.await("the launcher to take note of the end", farewellPatience, func() (bool, error) {
			if c.farewell {
				return true, nil
			}
			return c.ended != nil, c.ended
		})
	}
	c.out.Close()
	close(c.orders)
	// A launcher that reads nothing must not keep the writer from ending.
	_ = c.file.SetWriteDeadline(time.Now())
	<-c.flushed
	if err := c.file.Close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	if err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}

// put queues a frame for the launcher, and waits while too many are queued.
func (c *Conn) put(what string, f control.Frame) error {
	c.mu.Lock()
	closing, ended := c.closing, c.ended
	c.mu.Unlock()
	switch {
	case closing:
		return fmt.Errorf("%s: %w", what, ErrClosed)
	case ended != nil:
		return fmt.Errorf("%s: %w", what, ended)
	}
	if err := c.out.Put(f); err != nil {
		return fmt.Errorf("%s: %w", what, ErrDisconnected)
	}
	return nil
}

// read takes in what the launcher sends until the connection ends.
func (c *Conn) read() {
	r := bufio.NewReaderSize(c.file, 64<<10)
	limits := control.LauncherLimits(c.terms)
	for {
		f, err := control.Read(r, limits)
		if err == nil {
			err = c.handle(f)
		}
		if err == nil {
			continue
		}
		c.mu.Lock()
		if errors.Is(err, io.EOF) {
			err = ErrDisconnected
		} else {
			err = fmt.Errorf("%w: %w", ErrDisconnected, err)
		}
		closing := c.closing
		c.ended = err
		c.wake()
		c.mu.Unlock()
		c.out.Close()
		if !closing {
			c.lost(err)
		}
		return
	}
}

// handle deals with one frame. It never waits, for then heart-beats would.
func (c *Conn) handle(f control.Frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.wake()
	switch f.Kind {
	case control.Ping:
		_ = c.out.PutUnbounded(control.Frame{Kind: control.Pong, Num: f.Num})
	case control.Data:
		return c.deliver(f.Num, f.Body)
	case control.RankEnded:
		if f.Num < uint64(len(c.from)) {
			c.from[f.Num].gone = true
		}
	case control.BarrierDone:
		c.released = f.Num
	case control.Dump:
		go c.answerDump(f.Num)
	case control.Command:
		return c.queueOrder(f)
	case control.ByeAck:
		c.farewell = true
	case control.Reject:
		return fmt.Errorf("cut off: %s", f.Body)
	}
	return nil
}

func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	const tail = " … cut"
	return s[:limit-len(tail)] + tail
}
