package tcpwire

import (
	"io"
	"slices"
)

// hear takes octets and FIN.
func (c *conn) hear(s *segment) {
	room := max(0, maxWindow-c.unread)
	p := piece{at: s.seq, data: s.payload, flags: s.flags & fin}
	if n := c.want.sub(p.at); n > 0 { // a part was heard before
		if n > len(p.data) {
			n = len(p.data)
		}
		p.at, p.data = p.at.add(n), p.data[n:]
	}
	switch n := p.at.sub(c.want); {
	case p.end().sub(c.want) <= 0: // all of it was heard before
	case p.end().sub(c.want) > room+1, c.shut: // no room for it
	case n > 0:
		c.keep(p)
	default:
		c.take(p)
		c.takeEarly()
	}
	c.acknowledge()
}

// keep keeps what came before its time.
func (c *conn) keep(p piece) {
	if len(c.early) >= maxEarly {
		return
	}
	p.data = slices.Clone(p.data)
	i, _ := slices.BinarySearchFunc(c.early, p, func(x, y piece) int {
		if d := x.at.sub(y.at); d != 0 {
			return d
		}
		return y.end().sub(x.end()) // the longer one first
	})
	c.early = slices.Insert(c.early, i, p)
}

// take takes the next octets.
func (c *conn) take(p piece) {
	if len(p.data) > 0 {
		c.arrived = append(c.arrived, slices.Clone(p.data))
		c.unread += len(p.data)
	}
	c.want = p.end()
	c.shut = p.flags&fin != 0
}

// takeEarly takes what came before its time, and now is next.
func (c *conn) takeEarly() {
	for len(c.early) > 0 && !c.shut {
		p := c.early[0]
		n := c.want.sub(p.at)
		if n < 0 {
			return
		}
		c.early = c.early[1:]
		if p.end().sub(c.want) <= 0 {
			continue
		}
		p.at, p.data = p.at.add(min(n, len(p.data))), p.data[min(n, len(p.data)):]
		c.take(p)
	}
}

// read returns what came in the next segment; nil if nothing has, and an error behind all
// that did.
func (c *conn) read() ([]byte, error) {
	if len(c.arrived) > 0 {
		b := c.arrived[0]
		c.arrived, c.unread = c.arrived[1:], c.unread-len(b)
		// Who was told of no room, or of little, is told of more.
		if c.err == nil && !c.shut && c.told < maxWindow/2 && maxWindow-c.unread >= maxWindow/2 {
			c.acknowledge()
		}
		return b, nil
	}
	if c.shut { // which a RST behind it does not undo
		return nil, io.EOF
	}
	return nil, c.err
}
