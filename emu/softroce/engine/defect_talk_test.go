package engine

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// talk is a conversation with a NIC that is not expected to behave: unlike a
// peer, it judges nothing but writes down what it sees.
type talk struct {
	*peer
	log   []string
	heard []link.Datagram // what the last hear saw
}

func (c *talk) note(format string, args ...any) { c.log = append(c.log, fmt.Sprintf(format, args...)) }

// hear notes what the NIC has to send now.
func (c *talk) hear() {
	c.Helper()
	if c.take("") == 0 {
		c.note("silence")
	}
}

// listen lets d pass and notes what the NIC sends, and after how long.
func (c *talk) listen(d time.Duration) {
	c.Helper()
	start, end, sent := c.now, c.now.Add(d), 0
	for next := c.h.nic.Deadline(); next <= end; next = c.h.nic.Deadline() {
		c.now = max(c.now, next)
		c.h.nic.Tick(c.now)
		sent += c.take(fmt.Sprintf("after %v: ", c.now.Sub(start)))
	}
	if c.now = end; sent == 0 {
		c.note("silence")
	}
}

// take notes, each behind prefix, the packets that are ready.
func (c *talk) take(prefix string) int {
	c.Helper()
	c.heard, c.got = c.heard[:0], c.got[:0]
	for n := c.h.nic.Output(c.now, c.ds); n > 0; n = c.h.nic.Output(c.now, c.ds) {
		for _, d := range c.ds[:n] {
			d.Payload = bytes.Clone(d.Payload)
			c.heard = append(c.heard, d)
		}
	}
	for _, d := range c.heard {
		var k wire.Packet
		if err := k.Parse(d.Payload); err != nil {
			c.Fatalf("sent %x: %v", d.Payload, err)
		}
		c.got = append(c.got, k)
		text := "CNP"
		if k.BTH.Opcode != wire.CNP {
			info, _ := k.BTH.Opcode.Info()
			text = c.render(&k, info)
		}
		c.note("%s%s", prefix, text)
	}
	return len(c.heard)
}

// skip forgets what the NIC has to send now: it is no part of the story.
func (c *talk) skip() {
	c.Helper()
	log := c.log
	c.take("")
	c.log = log
}

// done notes the completions there are.
func (c *talk) done() {
	c.Helper()
	wcs := c.h.poll()
	for i := range wcs {
		c.note("%s", renderWC(&wcs[i]))
	}
	if len(wcs) == 0 {
		c.note("no completion")
	}
}

// happened notes the asynchronous events there are.
func (c *talk) happened() {
	n := 0
	for e, ok := c.h.nic.NextEvent(); ok; e, ok = c.h.nic.NextEvent() {
		n++
		c.note("%s", strings.TrimPrefix(e.Type.String(), "IBV_EVENT_"))
	}
	if n == 0 {
		c.note("no event")
	}
}

// standing notes the state of the QP.
func (c *talk) standing() { c.note("%s", strings.TrimPrefix(c.q.State().String(), "IBV_QPS_")) }

// tried notes what became of an attempt.
func (c *talk) tried(err error) {
	if err != nil {
		c.note("refused")
		return
	}
	c.note("taken")
}

// must ends the test for an error that has no place in the story.
func (c *talk) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// try posts a request that may be refused.
func (c *talk) try(id uint64, op verbs.WROpcode, sges ...verbs.SGE) {
	wr := verbs.SendWR{
		WRID: id, Opcode: op, Flags: verbs.SendSignaled,
		Remote: verbs.Remote{Addr: peerVA, RKey: peerRKey}, SGL: sges,
	}
	c.tried(c.q.PostSend(c.now, &wr, Refs{}))
}

// attr are the attributes that the QP is connected with.
func (c *talk) attr() verbs.QPAttr {
	a := connAttr(c.addr, peerQPN)
	a.PathMTU, a.RQPSN, a.SQPSN = verbs.MTUFor(c.mtu), uint32(c.rq), uint32(c.sq)
	return a
}

// move takes the QP to another state.
func (c *talk) move(to verbs.QPState, mask verbs.QPAttrMask) error {
	a := c.attr()
	a.State = to
	return c.q.Modify(c.now, a, mask|verbs.QPAttrState)
}

const initRC = initMask | verbs.QPAttrAccessFlags

// back takes the QP through RESET to INIT.
func (c *talk) back() {
	c.Helper()
	c.must(c.move(verbs.QPStateReset, 0))
	c.must(c.move(verbs.QPStateInit, initRC))
}

// another makes one more QP, connected like the first.
func (c *talk) another(edit func(*QPConfig)) *QP {
	c.Helper()
	q := c.h.qp(verbs.QPTypeRC, edit)
	c.h.ready(q, c.addr, peerQPN, func(a *verbs.QPAttr) { *a = c.attr() })
	return q
}

// sharing makes the conversation go on with a QP that receives from an SRQ of
// the given depth.
func (c *talk) sharing(depth int) *nic.SRQ {
	c.Helper()
	srq, err := c.h.nic.CreateSRQ(nic.SRQConfig{PD: c.h.pd, MaxWR: depth, MaxSGE: 1})
	c.must(err)
	c.q = c.another(func(q *QPConfig) { q.SRQ = srq })
	return srq
}

// shallow makes the conversation go on with a QP whose CQ has room for one.
func (c *talk) shallow() {
	c.Helper()
	cq, err := c.h.nic.CreateCQ(1)
	c.must(err)
	c.h.cq = cq
	c.q = c.another(nil)
}

// as changes the service that a packet belongs to.
func as(t wire.Transport) edit {
	return func(k *wire.Packet) { k.BTH.Opcode = wire.MakeOpcode(t, k.BTH.Opcode.Operation()) }
}

func toQP(q *QP) edit { return func(k *wire.Packet) { k.BTH.DestQP = q.num } }

// altered hands over a packet that was changed behind its maker's back; the
// ICRC fits what it has become.
func (c *talk) altered(d link.Datagram, change func(*link.Datagram)) {
	c.Helper()
	change(&d)
	c.seal(&d)
	c.deliver(d)
}

// marked hands over a packet that met congestion on its way.
func (c *talk) marked(d link.Datagram) {
	c.Helper()
	d.TClass |= link.CE
	c.deliver(d)
}

// otherAddr is where the connection's packets do not come from.
var otherAddr = netip.MustParseAddr("10.0.0.3")
