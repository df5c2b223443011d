package drive_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// toy is a StreamEngine whose conns echo, or send and check the echo.
type toy struct {
	drv   drive.StreamDriver
	dirty []*toyConn
	conns []*toyConn // all conns, also closed ones
	cond  drive.Cond
	due   mono.Time // of the next Tick

	settled, ticks int
	accepted       int
	rejectStreams  bool
}

func newToy() *toy { return &toy{due: mono.Never} }

// start attaches the driver.
func (t *toy) start(d drive.StreamDriver) {
	t.drv = d
	d.Lock(drive.CallWait)
	defer d.Unlock()
	t.cond = d.NewCond(drive.WaitReason("a change of a toy conn"))
}

func (t *toy) Settle(mono.Time)    { t.settled++ }
func (t *toy) Deadline() mono.Time { return t.due }

func (t *toy) Tick(now mono.Time) {
	t.ticks++
	t.due = mono.Never
	for _, c := range t.conns {
		if c.interval > 0 && !c.finished() {
			c.queueMessages(now)
		}
	}
}

func (t *toy) NextOutput() (drive.StreamConn, bool) {
	if len(t.dirty) == 0 {
		return nil, false
	}
	c := t.dirty[0]
	t.dirty = t.dirty[:copy(t.dirty, t.dirty[1:])]
	c.dirty = false
	return c, true
}

// echo listens on addr and echoes all input.
func (t *toy) echo(addr netip.AddrPort) (drive.StreamListener, error) {
	t.drv.Lock(drive.CallControl)
	defer t.drv.Unlock()
	return t.drv.Listen(addr, 64, func(netip.AddrPort) drive.StreamConn {
		if t.rejectStreams {
			return nil
		}
		t.accepted++
		c := &toyConn{toy: t, echoes: true}
		t.conns = append(t.conns, c)
		return c
	})
}

// dial starts client c, which sends c.messages messages of random size and closes.
func (t *toy) dial(local, remote netip.AddrPort, c *toyConn) error {
	t.drv.Lock(drive.CallControl)
	defer t.drv.Unlock()
	c.toy = t
	t.conns = append(t.conns, c)
	if err := t.drv.Dial(c, local, remote); err != nil {
		return err
	}
	c.queueMessages(t.drv.Now())
	t.drv.Pump()
	return nil
}

// toyConn is one end of a stream.
type toyConn struct {
	toy    *toy
	echoes bool
	dirty  bool

	out  []byte // bytes to write
	head int    // number of bytes written
	size int    // size of the buffers that Output returns; 0: changing sizes

	// Fields of a client.
	rng      *rand.Rand
	messages int           // still to be sent
	maxSize  int           // of a message
	window   int           // bytes that it sends ahead of the echo
	interval time.Duration // between messages; 0: none
	abortAt  int           // abort after this many echoed bytes; 0: never
	unechoed []byte        // sent and not echoed yet

	got       int // bytes
	connected bool
	mss       int
	local     netip.AddrPort
	eof       bool
	ended     bool // Output returned StreamClose or StreamAbort
	abort     bool
	err       error
	violation error // of the rules of StreamConn by the driver
}

// finished reports whether the stream has ended.
func (c *toyConn) finished() bool { return c.err != nil || c.abort && c.ended || c.eof && c.ended }

// markDirty makes NextOutput return c.
func (c *toyConn) markDirty() {
	if !c.dirty {
		c.dirty = true
		c.toy.dirty = append(c.toy.dirty, c)
	}
}

// queueMessages adds messages up to the window.
func (c *toyConn) queueMessages(now mono.Time) {
	for c.messages > 0 && len(c.unechoed) <= c.window {
		b := make([]byte, 0, c.maxSize+8)
		for n := c.rng.IntN(c.maxSize + 1); len(b) < n; {
			b = binary.LittleEndian.AppendUint64(b, c.rng.Uint64())
			b = b[:min(len(b), n)]
		}
		c.messages--
		c.out = append(c.out, b...)
		c.unechoed = append(c.unechoed, b...)
		if c.interval > 0 {
			break
		}
	}
	if c.interval > 0 && c.messages > 0 {
		c.toy.due = min(c.toy.due, now.Add(c.interval))
	}
	c.markDirty()
}

func (c *toyConn) Connected(_ mono.Time, local, _ netip.AddrPort, mss int) {
	if c.connected || c.err != nil {
		c.violation = fmt.Errorf("Connected was called twice, or after %v", c.err)
	}
	c.connected, c.local, c.mss = true, local, mss
	c.toy.cond.Notify()
}

func (c *toyConn) Failed(_ mono.Time, err error) {
	if c.err != nil || c.abort && c.ended {
		c.violation = fmt.Errorf("Failed was called after the end: %w", err)
	}
	c.err = err
	c.toy.cond.Notify()
}

func (c *toyConn) Input(now mono.Time, b []byte) {
	if !c.connected || c.eof || c.finished() {
		c.violation = fmt.Errorf("%d bytes, connected %v, EOF %v, finished %v", len(b), c.connected, c.eof, c.finished())
	}
	c.got += len(b)
	if c.echoes {
		c.out = append(c.out, b...)
		c.markDirty()
		return
	}
	if !bytes.HasPrefix(c.unechoed, b) && c.violation == nil {
		c.violation = fmt.Errorf("%d bytes that end at %d differ from those sent", len(b), c.got)
	}
	c.unechoed = c.unechoed[:copy(c.unechoed, c.unechoed[min(len(b), len(c.unechoed)):])]
	if c.abortAt > 0 && c.got >= c.abortAt {
		c.abort = true
		c.markDirty()
		c.toy.cond.Notify()
		return
	}
	if c.interval == 0 {
		c.queueMessages(now)
	}
	if len(c.unechoed) == 0 {
		c.toy.cond.Notify()
	}
}

func (c *toyConn) InputEOF(mono.Time) {
	if c.eof || !c.connected {
		c.violation = fmt.Errorf("InputEOF was called twice, or before Connected")
	}
	c.eof = true
	c.markDirty() // an echo closes too
	c.toy.cond.Notify()
}

func (c *toyConn) Output(into [][]byte) ([][]byte, drive.StreamEnd) {
	if c.abort {
		c.end()
		return into, drive.StreamAbort
	}
	rest := c.out[c.head:]
	for i := 0; len(rest) > 0 && len(into) < cap(into); i++ {
		n := c.size
		if n == 0 {
			n = 1 + (c.got+i*977)%1500
		}
		n = min(n, len(rest))
		into = append(into, rest[:n])
		rest = rest[n:]
	}
	done := c.echoes && c.eof || !c.echoes && c.messages == 0
	if len(rest) == 0 && done {
		if len(c.out) == c.head {
			c.end()
		}
		return into, drive.StreamClose
	}
	return into, drive.StreamOpen
}

// end notes the end of the stream, and notifies a program that waits for it.
func (c *toyConn) end() {
	c.ended = true
	c.toy.cond.Notify()
}

func (c *toyConn) Sent(_ mono.Time, n int, _ mono.Time) {
	if n <= 0 || c.head+n > len(c.out) {
		c.violation = fmt.Errorf("Sent(%d) of %d bytes", n, len(c.out)-c.head)
		return
	}
	if c.head += n; c.head == len(c.out) {
		c.out, c.head = c.out[:0], 0
	}
}

// waitUntil waits until done, which it calls with the lock held, or until the timeout.
func (t *toy) waitUntil(timeout time.Duration, done func() bool) bool {
	t.drv.Lock(drive.CallWait)
	defer t.drv.Unlock()
	until := t.drv.Now().Add(timeout)
	for !done() {
		remaining := until.Sub(t.drv.Now())
		if remaining <= 0 {
			return false
		}
		t.cond.Wait(remaining)
	}
	return true
}

// allFinished reports whether every conn has finished.
func (t *toy) allFinished() bool {
	for _, c := range t.conns {
		if !c.finished() {
			return false
		}
	}
	return true
}

// check returns an error if the driver violated the rules of StreamConn, or if bytes were
// lost.
func (t *toy) check() error {
	for i, c := range t.conns {
		if c.violation != nil {
			return fmt.Errorf("conn %d: %w", i, c.violation)
		}
		if c.err == nil && !c.abort && (len(c.unechoed) > 0 || len(c.out) > c.head) {
			return fmt.Errorf("conn %d: %d bytes without echo, %d not written", i, len(c.unechoed), len(c.out)-c.head)
		}
	}
	return nil
}
