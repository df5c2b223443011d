package perf

import (
	"encoding/binary"
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// Over a service that waits for no receive, the receiver tells the sender how
// many messages it has taken and posted receives for again: a credit, which is a
// message itself. It tells the sum, so that a lost one does no harm.
const (
	creditBytes = 8
	// creditSlots is how many credits may be on their way to a queue pair. A
	// receiver that posts again after a quarter of its receives needs five.
	creditSlots = 8
)

// creditAt is the memory of a credit that is received.
func (c *conn) creditAt(qp, slot int) (offset int) {
	return c.credit + (qp*creditSlots+slot)*(c.area+creditBytes)
}

// purse is what a sender may spend: receives that are posted at the other side.
type purse struct {
	*conn
	window        uint32
	sent, granted []uint32 // messages, by queue pair
	lost          []uint32 // of those, the ones that were given up
	recv          [1]verbs.RecvWR
	wcs           []verbs.WC
}

// newPurse makes the purse of a sender to whom each queue pair of the other side
// has so many receives posted. It is nil if the sender needs none.
func newPurse(c *conn, window int) (*purse, error) {
	if !c.side.Service.credits() {
		return nil, nil
	}
	n := len(c.qps)
	p := &purse{
		conn: c, window: uint32(window), wcs: make([]verbs.WC, 16),
		sent: make([]uint32, n), granted: make([]uint32, n), lost: make([]uint32, n),
	}
	p.recv[0].SGL = make([]verbs.SGE, 1)
	for i := range c.qps {
		for slot := range creditSlots {
			if err := p.expect(i, slot); err != nil {
				return nil, err
			}
		}
	}
	return p, nil
}

// expect posts a receive for a credit.
func (p *purse) expect(qp, slot int) error {
	p.recv[0].WRID = uint64(qp*creditSlots + slot)
	p.recv[0].SGL[0] = verbs.SGEOf(p.mr, p.creditAt(qp, slot), p.area+creditBytes)
	_, err := p.qps[qp].PostRecv(p.recv[:])
	return err
}

// room is how many messages may be sent on a queue pair.
func (p *purse) room(qp int) int { return int(p.window - (p.sent[qp] - p.granted[qp])) }

// take takes the credits that have come, and returns how many.
func (p *purse) take() (int, error) {
	n, err := p.recvs.Poll(p.wcs)
	if err == nil {
		err = succeeded(p.wcs[:n])
	}
	for k := 0; k < n && err == nil; k++ {
		id := int(p.wcs[k].WRID)
		qp, slot := id/creditSlots, id%creditSlots
		p.credited(qp, binary.BigEndian.Uint32(p.buf[p.creditAt(qp, slot)+p.area:]))
		err = p.expect(qp, slot)
	}
	return n, err
}

// credited notes how many messages the other side has taken. Credits may come
// late, behind newer ones.
func (p *purse) credited(qp int, taken uint32) {
	if granted := taken + p.lost[qp]; int32(granted-p.granted[qp]) > 0 {
		p.granted[qp] = granted
	}
}

// giveUp takes all that is under way for lost.
func (p *purse) giveUp() {
	for i := range p.sent {
		p.lost[i] += p.sent[i] - p.granted[i]
		p.granted[i] = p.sent[i]
	}
}

// settled reports whether a receiver that tells every so many messages will
// tell no more of what was sent.
func (p *purse) settled(every int) bool {
	for i := range p.sent {
		if p.sent[i]-p.granted[i] >= uint32(every) {
			return false
		}
	}
	return true
}

// grantor sends the credits of an inbox.
type grantor struct {
	*conn
	taken []uint32 // by queue pair
	open  []int    // credits that have not completed
	next  []int
	send  [1]verbs.SendWR
	wcs   []verbs.WC
}

func newGrantor(c *conn) *grantor {
	n := len(c.qps)
	g := &grantor{conn: c, taken: make([]uint32, n), open: make([]int, n), next: make([]int, n), wcs: make([]verbs.WC, 16)}
	g.send[0] = verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: make([]verbs.SGE, 1)}
	return g
}

// grant tells that so many more receives are posted.
func (g *grantor) grant(qp, receives int) error {
	g.taken[qp] += uint32(receives)
	var late overdue
	for {
		n, err := g.sends.Poll(g.wcs)
		if err == nil {
			err = succeeded(g.wcs[:n])
		}
		if err != nil {
			return err
		}
		for k := range n {
			g.open[g.wcs[k].WRID]--
		}
		if g.open[qp] < creditSlots {
			break
		}
		if late.yet() {
			return fmt.Errorf("no completion of a credit within %v", patience)
		}
	}
	slot := g.next[qp] % creditSlots
	g.next[qp]++
	g.open[qp]++
	at := g.creditAt(qp, slot)
	binary.BigEndian.PutUint32(g.buf[at:], g.taken[qp])
	g.send[0].WRID = uint64(qp)
	g.send[0].SGL[0] = verbs.SGEOf(g.mr, at, creditBytes)
	g.aim(g.send[:], qp)
	_, err := g.qps[qp].PostSend(g.send[:])
	return err
}
