package workload

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// liveState is the state that other goroutines may access while the program runs. The lock
// is never held over a verb, which would block a simulated world.
type liveState struct {
	mu    sync.Mutex
	text  string
	at    time.Duration
	qps   []verbs.QP // connected
	hadQP bool
}

// publish sets the text that status returns.
func (l *liveState) publish(at time.Duration, text string) {
	l.mu.Lock()
	l.text, l.at = text, at
	l.mu.Unlock()
}

// status returns the published text and its time.
func (l *liveState) status() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text == "" {
		return "not started"
	}
	return fmt.Sprintf("at %v: %s", l.at, l.text)
}

// add records connected queue pairs, which breakAll breaks; nil ones are ignored.
func (l *liveState) add(qps ...verbs.QP) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hadQP = true
	for _, q := range qps {
		if q != nil {
			l.qps = append(l.qps, q)
		}
	}
}

// remove undoes add.
func (l *liveState) remove(qps ...verbs.QP) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.qps = slices.DeleteFunc(l.qps, func(q verbs.QP) bool { return slices.Contains(qps, q) })
}

// breakAll moves the connected queue pairs to the error state. It fails if none was ever connected;
// there may be none now, between two connections.
func (l *liveState) breakAll() error {
	l.mu.Lock()
	qps, hadQP := slices.Clone(l.qps), l.hadQP
	l.mu.Unlock()
	if !hadQP {
		return errors.New("no queue pair to break: the program has not connected one yet")
	}
	var errs []error
	for _, q := range qps {
		err := traffic.ToError(q)
		if err != nil && !errors.Is(err, verbs.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// maxStatusLines limits the connections in a status.
const maxStatusLines = 8

// publish publishes the state of all connections, at most once per tick until all are over.
func (n *node) publish() {
	if n.unfinished > 0 && n.live.at != 0 && n.now-n.live.at < n.tick() {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d of %d connections to go, %d messages received", n.cfg.Kind, n.unfinished, len(n.conns), n.log.messages)
	lines := 0
	for _, c := range n.conns {
		if c.state == connOver {
			continue
		}
		if lines++; lines > maxStatusLines {
			fmt.Fprintf(&b, "\n  and %d more", n.unfinished-maxStatusLines)
			break
		}
		b.WriteString("\n  ")
		b.WriteString(c.status())
	}
	n.live.publish(n.now, b.String())
}

// status describes the progress of the connection.
func (c *conn) status() string {
	s := fmt.Sprintf("%s on rail %d: %v", hostOf(c.peer.rank), c.rail.num, c.state)
	if c.incarnation > 0 {
		s += fmt.Sprintf(" (attempt %d)", c.incarnation+1)
	}
	if p := c.out; p != nil {
		s += fmt.Sprintf("; sent %d of %d, %d acknowledged", p.next, p.total, p.acked)
		switch {
		case c.state != connUp || p.complete():
		case p.next-p.acked > 0:
			s += ", waits for an acknowledgement"
		case p.next == p.allowed:
			s += ", waits for its turn"
		default:
			s += ", waits for credits"
		}
	}
	if x := c.in; x != nil {
		s += fmt.Sprintf("; received %d of %d", x.arrived, x.total)
		if c.state == connUp && x.arrived < x.total {
			s += ", waits for more"
		}
	}
	if c.doneReported && !c.peerDone {
		s += "; done, waits for the peer to be"
	}
	return s
}

// fillGuard fills memory that the peer must not write with bytes that depend on the connection.
func (l *link) fillGuard(b []byte) {
	const salt = 3 // makes the key differ from others of the connection
	traffic.Fill(b, traffic.Derive(l.rank.Seed, l.edge.id, l.side, salt))
}

// verify compares memory that peers access with its expected contents, and reports lost messages.
func (n *node) verify() {
	for _, c := range n.conns {
		c.verifyMemory()
		if c.in != nil {
			c.in.verify(c.finished())
		}
	}
	if n.addsAtomics {
		n.verifyAtomics()
	}
}

// verifyMemory compares the memory that the peer accesses with its expected contents: guard bytes
// at both ends, which must not change, and the last message in each slot. If writes are missing, it
// checks the guards only: a failed peer may have written more than it announced.
func (c *conn) verifyMemory() {
	got := c.public.buf
	want := make([]byte, len(got))
	c.fillGuard(want)
	op := c.cfg.Op
	l := &c.layout
	fill, upTo := func([]byte, int) {}, 0
	switch {
	case op == OpWrite && c.in != nil:
		fill, upTo = c.in.Fill, c.in.next
	case op == OpRead && c.out != nil:
		fill, upTo = c.out.Fill, c.out.published
	}
	for seq := max(0, upTo-l.window); seq < upTo; seq++ {
		at := l.slot(seq)
		fill(want[at:at+c.cfg.Bytes], seq)
	}
	checked := len(got)
	if op == OpWrite && c.in != nil && upTo < c.in.total {
		copy(want[slotsAt:len(want)-guardLen], got[slotsAt:])
		checked = slotsAt + guardLen
	}
	c.log.checked += int64(checked)
	for i := range got {
		if got[i] != want[i] {
			c.log.violation(traffic.Contents, "memory of %s that %s accesses: byte %d is %#02x at the end, not %#02x", c.host(), hostOf(c.peer.rank), i, got[i], want[i])
			return
		}
	}
}

// flow returns the counters of the connection. Posted and Acked count messages sent and reads.
func (c *conn) flow() Flow {
	f := Flow{Peer: c.peer.rank, Rail: c.rail.num, Service: c.cfg.service()}
	if p := c.out; p != nil {
		f.Posted, f.Acked = p.posted, p.completed
	}
	if x := c.in; x != nil {
		f.Posted += x.posted
		f.Acked += x.completed
		f.Expected, f.Arrived, f.Duplicates, f.Reordered, f.Bytes = x.total, x.arrived, x.duplicates, x.reordered, x.bytes
	}
	return f
}
