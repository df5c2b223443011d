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
	conns []*toyConn // all that were ever made
	gate  drive.Cond
	due   mono.Time // of the next Tick

	settled, ticks int
	accepted       int
	turnAway       bool
}

func newToy() *toy { return &toy{due: mono.Never} }

// start gives t its driver.
func (t *toy) start(d drive.StreamDriver) {
	t.drv = d
	d.Lock(drive.CallWait)
	defer d.Unlock()
	t.gate = d.NewCond(drive.WaitReason("news from a toy"))
}

func (t *toy) Settle(mono.Time)    { t.settled++ }
func (t *toy) Deadline() mono.Time { return t.due }

func (t *toy) Tick(now mono.Time) {
	t.ticks++
	t.due = mono.Never
	for _, c := range t.conns {
		if c.every > 0 && !c.over() {
			c.say(now)
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

// echo listens, and echoes what is said to it.
func (t *toy) echo(addr netip.AddrPort) (drive.StreamListener, error) {
	t.drv.Lock(drive.CallControl)
	defer t.drv.Unlock()
	return t.drv.Listen(addr, 64, func(netip.AddrPort) drive.StreamConn {
		if t.turnAway {
			return nil
		}
		t.accepted++
		c := &toyConn{toy: t, echoes: true}
		t.conns = append(t.conns, c)
		return c
	})
}

// dial starts a conn that says messages random-sized messages and ends.
func (t *toy) dial(local, remote netip.AddrPort, c *toyConn) error {
	t.drv.Lock(drive.CallControl)
	defer t.drv.Unlock()
	c.toy = t
	t.conns = append(t.conns, c)
	if err := t.drv.Dial(c, local, remote); err != nil {
		return err
	}
	c.say(t.drv.Now())
	t.drv.Pump()
	return nil
}

// toyConn is one end of a stream.
type toyConn struct {
	toy    *toy
	echoes bool
	dirty  bool

	out  []byte // to be written
	head int    // of it is taken
	size int    // of the pieces that out is given in; 0: changing ones

	// What one that does not echo has to say.
	rng      *rand.Rand
	messages int           // still to be said
	largest  int           // of them
	ahead    int           // bytes that it may be ahead of the echo
	every    time.Duration // one message each, if not 0
	abortAt  int           // when so many bytes were echoed; 0: never
	said     []byte        // and not echoed yet

	got       int // bytes
	connected bool
	mss       int
	local     netip.AddrPort
	eof       bool
	ended     bool // StreamClose or StreamAbort was given
	abort     bool
	err       error
	wrong     error
}

// over reports whether nothing more is to happen.
func (c *toyConn) over() bool { return c.err != nil || c.abort && c.ended || c.eof && c.ended }

func (c *toyConn) touch() {
	if !c.dirty {
		c.dirty = true
		c.toy.dirty = append(c.toy.dirty, c)
	}
}

// say adds messages, as many as it may be ahead of their echo.
func (c *toyConn) say(now mono.Time) {
	for c.messages > 0 && len(c.said) <= c.ahead {
		b := make([]byte, 0, c.largest+8)
		for n := c.rng.IntN(c.largest + 1); len(b) < n; {
			b = binary.LittleEndian.AppendUint64(b, c.rng.Uint64())
			b = b[:min(len(b), n)]
		}
		c.messages--
		c.out = append(c.out, b...)
		c.said = append(c.said, b...)
		if c.every > 0 {
			break
		}
	}
	if c.every > 0 && c.messages > 0 {
		c.toy.due = min(c.toy.due, now.Add(c.every))
	}
	c.touch()
}

func (c *toyConn) Connected(_ mono.Time, local, _ netip.AddrPort, mss int) {
	if c.connected || c.err != nil {
		c.wrong = fmt.Errorf("connected twice, or after %v", c.err)
	}
	c.connected, c.local, c.mss = true, local, mss
	c.toy.gate.Notify()
}

func (c *toyConn) Failed(_ mono.Time, err error) {
	if c.err != nil || c.abort && c.ended {
		c.wrong = fmt.Errorf("failed after the end: %w", err)
	}
	c.err = err
	c.toy.gate.Notify()
}

func (c *toyConn) Input(now mono.Time, b []byte) {
	if !c.connected || c.eof || c.over() {
		c.wrong = fmt.Errorf("%d bytes, connected %v, EOF %v, over %v", len(b), c.connected, c.eof, c.over())
	}
	c.got += len(b)
	if c.echoes {
		c.out = append(c.out, b...)
		c.touch()
		return
	}
	if !bytes.HasPrefix(c.said, b) && c.wrong == nil {
		c.wrong = fmt.Errorf("%d bytes that end at %d are not what was said", len(b), c.got)
	}
	c.said = c.said[:copy(c.said, c.said[min(len(b), len(c.said)):])]
	if c.abortAt > 0 && c.got >= c.abortAt {
		c.abort = true
		c.touch()
		c.toy.gate.Notify()
		return
	}
	if c.every == 0 {
		c.say(now)
	}
	if len(c.said) == 0 {
		c.toy.gate.Notify()
	}
}

func (c *toyConn) InputEOF(mono.Time) {
	if c.eof || !c.connected {
		c.wrong = fmt.Errorf("EOF twice, or before the stream")
	}
	c.eof = true
	c.touch() // one that echoes ends too
	c.toy.gate.Notify()
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

// end notes that the last has been given, which may be what a program waits for: it may
// have been told of the input before its consequence was asked for.
func (c *toyConn) end() {
	c.ended = true
	c.toy.gate.Notify()
}

func (c *toyConn) Sent(_ mono.Time, n int) {
	if n <= 0 || c.head+n > len(c.out) {
		c.wrong = fmt.Errorf("sent %d of %d bytes", n, len(c.out)-c.head)
		return
	}
	if c.head += n; c.head == len(c.out) {
		c.out, c.head = c.out[:0], 0
	}
}

// await waits until done, with the lock held, and reports whether it came to be.
func (t *toy) await(timeout time.Duration, done func() bool) bool {
	t.drv.Lock(drive.CallWait)
	defer t.drv.Unlock()
	until := t.drv.Now().Add(timeout)
	for !done() {
		left := until.Sub(t.drv.Now())
		if left <= 0 {
			return false
		}
		t.gate.Wait(left)
	}
	return true
}

// finished reports whether every conn is over.
func (t *toy) finished() bool {
	for _, c := range t.conns {
		if !c.over() {
			return false
		}
	}
	return true
}

// faults is what any conn found wrong.
func (t *toy) faults() error {
	for i, c := range t.conns {
		if c.wrong != nil {
			return fmt.Errorf("conn %d: %w", i, c.wrong)
		}
		if c.err == nil && !c.abort && (len(c.said) > 0 || len(c.out) > c.head) {
			return fmt.Errorf("conn %d: %d bytes without echo, %d not written", i, len(c.said), len(c.out)-c.head)
		}
	}
	return nil
}
