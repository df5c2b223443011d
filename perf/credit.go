package perf

import (
	"encoding/binary"
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// Without RNR, the receiver sends credits: the total number of receives that it has
// posted again after messages used them. A lost credit is replaced by the next one.
const (
	creditBytes = 8
	// maxCredits is the maximum number of credits in flight per queue pair. A
	// receiver that reposts a quarter of its receives at a time needs five.
	maxCredits = 8
)

// creditOffset returns the offset in buf of one of the maxCredits credit buffers of a queue pair.
func (c *conn) creditOffset(qp, slot int) (offset int) {
	return c.creditBase + (qp*maxCredits+slot)*(c.grhBytes+creditBytes)
}

// creditTracker counts the receives that are posted at the other side.
type creditTracker struct {
	*conn
	window        uint32
	sent, granted []uint32 // messages, by queue pair
	lost          []uint32 // messages that are assumed lost
	recv          [1]verbs.RecvWR
	wcs           []verbs.WC
}

// newCreditTracker returns a tracker for a sender whose peer has window receives
// posted on each queue pair; nil if the service needs no credits.
func newCreditTracker(c *conn, window int) (*creditTracker, error) {
	if !c.side.Service.needsCredits() {
		return nil, nil
	}
	n := len(c.qps)
	t := &creditTracker{
		conn: c, window: uint32(window), wcs: make([]verbs.WC, creditPollBatch),
		sent: make([]uint32, n), granted: make([]uint32, n), lost: make([]uint32, n),
	}
	t.recv[0].SGL = make([]verbs.SGE, 1) // set by postCreditRecv
	for i := range c.qps {
		for slot := range maxCredits {
			if err := t.postCreditRecv(i, slot); err != nil {
				return nil, err
			}
		}
	}
	return t, nil
}

// postCreditRecv posts a receive for a credit. Its WRID has the queue pair and the slot.
func (t *creditTracker) postCreditRecv(qp, slot int) error {
	t.recv[0].WRID = uint64(qp*maxCredits + slot)
	t.recv[0].SGL[0] = verbs.SGEOf(t.mr, t.creditOffset(qp, slot), t.grhBytes+creditBytes)
	_, err := t.qps[qp].PostRecv(t.recv[:])
	return err
}

// available returns how many messages may be sent on a queue pair.
func (t *creditTracker) available(qp int) int { return int(t.window - (t.sent[qp] - t.granted[qp])) }

// poll processes received credits and returns their number.
func (t *creditTracker) poll() (int, error) {
	n, err := pollSuccess(t.recvs, t.wcs)
	for k := 0; k < n && err == nil; k++ {
		id := int(t.wcs[k].WRID)
		qp, slot := id/maxCredits, id%maxCredits
		t.grant(qp, binary.BigEndian.Uint32(t.buf[t.creditOffset(qp, slot)+t.grhBytes:]))
		err = t.postCreditRecv(qp, slot)
	}
	return n, err
}

// grant applies a credit, which has the total number of receives that the receiver has reposted.
// Lost messages used no receive and are added. It ignores a credit older than the last one.
func (t *creditTracker) grant(qp int, reposted uint32) {
	if granted := reposted + t.lost[qp]; int32(granted-t.granted[qp]) > 0 {
		t.granted[qp] = granted
	}
}

// assumeLost counts all messages without a credit as lost, so that as many more may be sent.
func (t *creditTracker) assumeLost() {
	for i := range t.sent {
		t.lost[i] += t.sent[i] - t.granted[i]
		t.granted[i] = t.sent[i]
	}
}

// isCreditDue reports whether the receiver must send another credit for the messages sent so far:
// it sends one after interval messages of a queue pair.
func (t *creditTracker) isCreditDue(interval int) bool {
	for i := range t.sent {
		if t.sent[i]-t.granted[i] >= uint32(interval) {
			return true
		}
	}
	return false
}

// creditSender sends the credits of a receiver.
type creditSender struct {
	*conn
	granted []uint32 // receives announced so far, by queue pair
	pending []int    // credits without completion, by queue pair
	next    []int    // number of the next credit, by queue pair
	wr      [1]verbs.SendWR
	wcs     []verbs.WC
}

// newCreditSender returns a sender that has granted no receives yet.
func newCreditSender(c *conn) *creditSender {
	n := len(c.qps)
	g := &creditSender{conn: c, granted: make([]uint32, n), pending: make([]int, n), next: make([]int, n), wcs: make([]verbs.WC, creditPollBatch)}
	g.wr[0] = verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: make([]verbs.SGE, 1)} // send fills in the rest
	return g
}

// send adds receives to the number that was posted on a queue pair, and sends the total to the
// peer as a credit. It waits while maxCredits earlier credits have not completed.
func (g *creditSender) send(qp, receives int) error {
	g.granted[qp] += uint32(receives)
	timer := g.side.timer()
	for {
		n, err := pollSuccess(g.sends, g.wcs)
		if err != nil {
			return err
		}
		for k := range n {
			g.pending[g.wcs[k].WRID]--
		}
		if g.pending[qp] < maxCredits {
			break
		}
		if timer.expired() {
			return fmt.Errorf("no completion of a credit within %v", timer.limit)
		}
	}
	slot := g.next[qp] % maxCredits
	g.next[qp]++
	g.pending[qp]++
	at := g.creditOffset(qp, slot)
	binary.BigEndian.PutUint32(g.buf[at:], g.granted[qp])
	g.wr[0].WRID = uint64(qp)
	g.wr[0].SGL[0] = verbs.SGEOf(g.mr, at, creditBytes)
	g.setDestination(g.wr[:], qp)
	_, err := g.qps[qp].PostSend(g.wr[:])
	return err
}
