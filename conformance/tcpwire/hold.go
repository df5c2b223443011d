package tcpwire

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// holdBack says octets that only release sends.
func (c *conn) holdBack(b []byte) error {
	if c.hold != nil && c.hold.held {
		return errors.New("octets are held back already: release all of them first")
	}
	c.push(piece{data: slices.Clone(b), held: true})
	p := c.pieces[len(c.pieces)-1]
	c.hold = &p
	return nil
}

// release sends a part of what is held back, or was, as one segment. When every octet was
// sent at least once, what is lost of them is sent again as of others.
func (c *conn) release(now time.Time, from, to int) error {
	return c.releaseAs(now, from, to, 0)
}

// releaseEnd sends the rest of what is held back, and our FIN with it.
func (c *conn) releaseEnd(now time.Time, from int) error {
	if c.hold == nil || c.next != c.hold.end() || c.ended {
		return errors.New("the end of the stream is not behind what is held back")
	}
	n := len(c.hold.data)
	if err := c.releaseAs(now, from, n, fin); err != nil {
		return err
	}
	c.ended = true
	c.push(piece{flags: fin, sent: true})
	c.arm(now)
	return nil
}

func (c *conn) releaseAs(now time.Time, from, to int, f flags) error {
	p := c.hold
	switch {
	case c.err != nil:
		return c.err
	case p == nil:
		return errors.New("no octets are held back")
	case from < 0 || to > len(p.data) || from >= to:
		return fmt.Errorf("octets %d to %d of %d that are held back", from, to, len(p.data))
	}
	c.emit(p.at.add(from), p.data[from:to], f)
	if !p.held {
		return nil
	}
	p.done = append(p.done, [2]int{from, to})
	if covered(p.done, len(p.data)) {
		p.held = false
		c.unhold(now)
	}
	return nil
}

// unhold has what was held back be as what was written.
func (c *conn) unhold(now time.Time) {
	var rest []piece
	at := c.hold.at
	for chunk := range slices.Chunk(c.hold.data, max(c.mss, 1)) {
		rest = append(rest, piece{at: at, data: chunk, sent: true})
		at = at.add(len(chunk))
	}
	if i := slices.IndexFunc(c.pieces, func(x piece) bool { return x.held }); i >= 0 {
		c.pieces = slices.Concat(c.pieces[:i], rest, c.pieces[i+1:])
	}
	c.drop()
	if len(c.pieces) > 0 {
		c.arm(now)
	}
}

// covered reports whether parts together are all of n octets.
func covered(parts [][2]int, n int) bool {
	parts = slices.SortedFunc(slices.Values(parts), func(x, y [2]int) int { return x[0] - y[0] })
	at := 0
	for _, p := range parts {
		if p[0] > at {
			return false
		}
		at = max(at, p[1])
	}
	return at >= n
}
