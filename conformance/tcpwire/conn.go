package tcpwire

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
)

// conn is a connection: a plain value that has no clock and no socket.
type conn struct {
	local, remote netip.AddrPort
	// passive is set if the other side has begun.
	passive bool
	// established is set when the other side has acknowledged our SYN, and we its.
	established bool
	// err is how the connection was broken; nil while it is not.
	err error
	// out is where segments go.
	out func(*segment)

	// What we say. una is the first octet that is not acknowledged, next the one behind all
	// that was said, sent the one behind all that was ever sent.
	una, next, sent seq
	window          int // from una on
	mss             int // of the other side
	pieces          []piece
	timer           time.Time // of the first piece; zero if nothing waits
	backoff         time.Duration
	tries           int
	repeated        int // acknowledgements that say nothing new
	losing          bool
	lost            seq // while losing: what was sent before this may be lost
	hold            *piece
	ended           bool // we have said FIN

	// What we hear. want is the next octet; 0 before the SYN.
	want     seq
	heard    bool // a SYN
	announce int  // the MSS that we ask for
	early    []piece
	arrived  [][]byte // a segment each
	unread   int
	shut     bool // the other side's FIN has come
	told     int  // the window that we told of last
}

// piece is a part of the stream that goes in one segment.
type piece struct {
	at    seq
	data  []byte
	flags flags // SYN or FIN, which take a number
	sent  bool
	// held pieces are sent by nobody but the case. done are the parts of it that were.
	held bool
	done [][2]int
}

func (p *piece) end() seq {
	n := len(p.data)
	if p.flags&(syn|fin) != 0 {
		n++
	}
	return p.at.add(n)
}

const (
	// maxWindow is the most that fits into a header without scaling.
	maxWindow = 1<<16 - 1
	// maxEarly bounds segments that came before their time.
	maxEarly = 1024
	// firstBackoff is when what is not acknowledged is sent again at first; then later and
	// later, maxTries times.
	firstBackoff = 250 * time.Millisecond
	lastBackoff  = 2 * time.Second
	maxTries     = 8
)

// open begins a connection with our SYN, in answer to the other side's if it was heard.
func (c *conn) open(now time.Time, first seq) {
	c.passive = c.heard
	c.una, c.next, c.sent, c.backoff, c.window = first, first, first, firstBackoff, 1
	c.push(piece{flags: syn})
	c.flush(now)
}

// push puts a piece behind all that was said.
func (c *conn) push(p piece) {
	p.at = c.next
	c.next = p.end()
	c.pieces = append(c.pieces, p)
}

// say says octets, in as few segments as there may be.
func (c *conn) say(now time.Time, b []byte) {
	for chunk := range slices.Chunk(slices.Clone(b), max(c.mss, 1)) {
		c.push(piece{data: chunk})
	}
	c.flush(now)
}

// finish says FIN.
func (c *conn) finish(now time.Time) {
	if c.ended {
		return
	}
	c.ended = true
	c.push(piece{flags: fin})
	c.flush(now)
}

// flush sends what was never sent and may be.
func (c *conn) flush(now time.Time) {
	if c.err != nil {
		return
	}
	for i := 0; i < len(c.pieces); i++ {
		p := &c.pieces[i]
		if p.sent || p.held {
			continue
		}
		if p.at == c.una && c.window > 0 && c.window < len(p.data) { // it would never fit
			rest := piece{at: p.at.add(c.window), data: p.data[c.window:]}
			p.data = p.data[:c.window]
			c.pieces = slices.Insert(c.pieces, i+1, rest)
			p = &c.pieces[i]
		}
		if p.end().sub(c.una) > max(c.window, 0) || p.flags&syn == 0 && !c.established {
			break
		}
		p.sent = true
		c.emit(p.at, p.data, p.flags)
		c.arm(now)
	}
	if len(c.pieces) > 0 {
		c.arm(now)
	}
}

// arm starts the timer if it does not run.
func (c *conn) arm(now time.Time) {
	if c.timer.IsZero() {
		c.timer = now.Add(c.backoff)
	}
}

// emit sends a segment.
func (c *conn) emit(at seq, data []byte, f flags) {
	s := segment{src: c.local, dst: c.remote, seq: at, flags: f, payload: data}
	if c.heard {
		s.flags |= ack
		s.ack = c.want
	}
	if len(data) > 0 {
		s.flags |= psh
	}
	if f&syn != 0 {
		s.mss = uint16(c.announce)
	}
	c.told = max(0, maxWindow-c.unread)
	s.window = uint16(c.told)
	if end := at.add(s.len()); end.sub(c.sent) > 0 {
		c.sent = end
	}
	c.out(&s)
}

// acknowledge says how far we have heard.
func (c *conn) acknowledge() { c.emit(c.sent, nil, 0) }

// breakOff breaks the connection, unless both sides have ended it in order.
func (c *conn) breakOff(why error) {
	if c.err != nil {
		return
	}
	c.err = why
	if !(c.shut && c.ended && c.una == c.next) {
		c.emit(c.sent, nil, rst)
	}
}

// tick is called when the timer has run out: what is not acknowledged goes again.
func (c *conn) tick(now time.Time) {
	if c.err != nil || c.timer.IsZero() || now.Before(c.timer) {
		return
	}
	c.timer = time.Time{}
	i := slices.IndexFunc(c.pieces, func(p piece) bool { return !p.held })
	if i < 0 {
		return
	}
	c.backoff = min(2*c.backoff, lastBackoff)
	p := &c.pieces[i]
	if !p.sent { // its window is closed: is it still?
		if len(p.data) > 0 && c.established {
			c.emit(p.at, p.data[:1], 0)
		}
		c.arm(now)
		return
	}
	if c.tries++; c.tries > maxTries {
		c.breakOff(fmt.Errorf("the device acknowledges nothing of what was sent it %d times: %w", c.tries, errSilent))
		return
	}
	c.resend(now, p)
}

// resend sends a piece again. More of what was sent with it may be lost: see acked.
func (c *conn) resend(now time.Time, p *piece) {
	if !c.losing {
		c.losing, c.lost = true, c.sent
	}
	c.emit(p.at, p.data, p.flags)
	c.timer = now.Add(c.backoff)
}

// errSilent is how a connection ends whose other side is not there any more.
var errSilent = errors.New("no answer")

// handle takes a segment of the other side.
func (c *conn) handle(now time.Time, s *segment) {
	if c.err != nil {
		return
	}
	switch {
	case s.flags&rst != 0:
		c.reset(s)
		return
	case s.flags&syn != 0:
		c.greet(s)
	case !c.heard:
		return // before its SYN nothing counts
	}
	if s.flags&ack != 0 {
		c.acked(now, s)
	}
	if c.heard && (len(s.payload) > 0 || s.flags&fin != 0) {
		c.hear(s)
	}
}

// reset takes a RST, if it can be the other side's own.
func (c *conn) reset(s *segment) {
	switch {
	case !c.heard && (s.flags&ack == 0 || s.ack != c.next),
		c.heard && (s.seq.sub(c.want) < 0 || s.seq.sub(c.want) > maxWindow):
		return
	}
	c.err = fmt.Errorf("%w by the device", conformance.ErrReset)
}

// greet takes a SYN.
func (c *conn) greet(s *segment) {
	if c.heard {
		c.acknowledge() // ours got lost
		return
	}
	if s.flags&ack != 0 && s.ack != c.una.add(1) {
		return // of another connection
	}
	c.heard, c.want = true, s.seq.add(1)
	if c.mss = int(s.mss); c.mss == 0 {
		c.mss = 536
	}
}

// acked takes an acknowledgement.
func (c *conn) acked(now time.Time, s *segment) {
	n := s.ack.sub(c.una)
	switch {
	case n < 0 || s.ack.sub(c.sent) > 0:
		return // old, or of what was never said
	case n == 0:
		c.again(now, s)
	}
	grown := int(s.window) > c.window
	c.window = int(s.window)
	if n > 0 {
		c.una, c.backoff, c.tries, c.repeated, c.timer = s.ack, firstBackoff, 0, 0, time.Time{}
		c.drop()
		if c.losing = c.losing && c.una.sub(c.lost) < 0; c.losing && len(c.pieces) > 0 && c.pieces[0].sent {
			c.resend(now, &c.pieces[0]) // the one behind is lost as well, most likely
		}
		if !c.established {
			c.established = true
			if !c.passive {
				c.acknowledge()
			}
		}
	}
	if n > 0 || grown {
		c.flush(now)
	}
}

// again counts acknowledgements that say nothing new. Behind three of them a segment is
// taken for lost.
func (c *conn) again(now time.Time, s *segment) {
	if s.len() > 0 || int(s.window) != c.window || len(c.pieces) == 0 {
		return
	}
	if c.repeated++; c.repeated == 3 && c.pieces[0].sent && !c.pieces[0].held {
		c.resend(now, &c.pieces[0])
	}
}

// drop forgets what was acknowledged.
func (c *conn) drop() {
	for len(c.pieces) > 0 {
		p := &c.pieces[0]
		n := c.una.sub(p.at)
		switch {
		case n <= 0:
			return
		case c.una.sub(p.end()) >= 0:
			c.pieces = c.pieces[1:]
			continue
		case n <= len(p.data) && !p.held:
			p.at, p.data = c.una, p.data[n:]
		}
		return
	}
}
