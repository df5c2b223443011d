package roce

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var srqCases = conformance.Group{Needs: verbs.CapRC | verbs.CapSRQ, DefaultLabels: labelRC}.Cases([]conformance.Case{{
	ID: "srq/use/qps-share-its-receives", Cite: ibta("", "srq/1"),
	Title:   "Queue pairs on one SRQ share its receives, and each message uses one of them",
	Sends:   "SENDs to two queue pairs in turn, as many as there are receives",
	Expects: "each message in a different receive, completed with the QPN of its queue pair",
	Defects: []string{"SRQDoubleUse"}, Run: onSRQ(4, func(q *sharedQueue) {
		pair := q.connectN(2)
		for i := range 4 {
			c := pair[i%2]
			q.deliver(c, i/2, 10+i)
		}
		q.expectUsedUp()
	}),
}, {
	ID: "srq/use/each-receive-serves-one-message", Cite: ibta("10.8.3.2", "srq/6"),
	Title:   "Two interleaved messages use different receives, whichever ends first",
	Sends:   "SENDs of three packets to two queue pairs, packet by packet in turn, and single ones to a third in between",
	Expects: "each message complete in a different receive",
	Defects: []string{"SRQDoubleUse"}, Run: onSRQ(4, func(q *sharedQueue) {
		all := q.connectN(3)
		n := 2*MTU + 8
		one, two := rig.Pattern(n, 0x11), rig.Pattern(n, 0x77)
		first, second := ib.Send(firstPeerPSN, one, MTU), ib.Send(firstPeerPSN, two, MTU)
		for i := range 2 {
			all[0].Send(first[i])
			all[1].Send(second[i])
			q.deliver(all[2], i, 20+i)
		}
		all[1].Send(second[2])
		q.expectDelivered(all[1], two)
		all[0].Send(first[2])
		q.expectDelivered(all[0], one)
		q.expectUsedUp()
	}),
}, {
	ID: "srq/use/own-receives-refused", Cite: ibta("", "srq/3"),
	Title:   "Posting a receive to a queue pair with an SRQ fails",
	Sends:   "nothing",
	Expects: "that posting a receive to queue pairs of RC, UC and UD is refused",
	Defects: []string{"SRQUnchecked"}, Run: OnPort(func(p *Port) {
		srq := p.newSharedQueue(1).srq
		for _, kind := range []verbs.QPType{verbs.QPTypeRC, verbs.QPTypeUC, verbs.QPTypeUD} {
			if !p.Caps.Has(capOf[kind]) {
				continue
			}
			c := p.connect(Setup{qpType: kind, srq: srq})
			n, err := c.QP.PostRecv([]verbs.RecvWR{{WRID: 99, SGL: c.LocalMem.SGL(0, 64)}})
			c.MustFail(fmt.Sprintf("a receive of a queue pair of %v on an SRQ", kind), err, nil)
			c.Check(n == 0, "no receive posted", "%d", n)
		}
	}),
}, {
	ID: "srq/empty/rc-gets-an-rnr-nak", Cite: ibta("", "srq/4"),
	Title:   "An RC SEND to an empty SRQ is answered by an RNR NAK, and delivered when it is retransmitted",
	Sends:   "two SENDs to a queue pair on an SRQ with one receive; the second again when there is another",
	Expects: "an ACK, an RNR NAK, then an ACK",
	Defects: []string{"RNRSilent"}, Run: onSRQ(1, func(q *sharedQueue) {
		c := q.connectN(1)[0]
		c.exchange(c.peerSend(0, 16), c.deviceAck(0, 1))
		q.expectDelivered(c, Data(16))
		c.exchange(c.peerSend(1, 20), ib.RNR(c.PeerPSN(1), c.Attr.MinRNRTimer, 1))
		q.post(1)
		c.exchange(c.peerSend(1, 20), c.deviceAck(1, 2))
		q.expectDelivered(c, Data(20))
	}),
}, {
	ID: "srq/empty/datagram-vanishes", Cite: ibta("", "srq/4"), Needs: verbs.CapUD, Labels: labelUD,
	Title:   "A datagram or UC message to an empty SRQ is dropped silently",
	Sends:   "a datagram to a queue pair on an empty SRQ, and a SEND to a UC queue pair, if supported; another of each when there is a receive",
	Expects: "nothing for the first ones, a completion for each of the others",
	Defects: []string{"UDWaitsForReceive"}, Run: onSRQ(0, func(q *sharedQueue) {
		d := q.port.newUDPort(0, q.srq)
		d.SendPacket(d.datagram(Data(16)))
		d.expectSilence(silencePeriod)
		q.post(1)
		d.expectNoCompletion()
		d.expectDelivery(24)
		if !q.port.Caps.Has(verbs.CapUC) {
			return
		}
		c := q.port.connect(Setup{qpType: verbs.QPTypeUC, srq: q.srq})
		c.Send(ucSendOnly(c.PeerPSN(0), 16))
		c.expectSilence(silencePeriod)
		q.post(1)
		c.expectNoCompletion()
		c.expectUCDelivery(1, 24, 2)
	}),
}, {
	ID: "srq/limit/event-comes-once", Cite: ibta("", "srq/2"),
	Title:   "SRQ_LIMIT_REACHED is raised once when the receives fall below the limit, which is then disarmed",
	Sends:   "five SENDs to a queue pair on an SRQ with six receives and a limit of five; more when the limit is armed again",
	Expects: "no event at five, one at four, none after it; and one more when it is armed again",
	Defects: []string{"SRQLimitRepeats"}, Run: onSRQ(6, func(q *sharedQueue) {
		c := q.connectN(1)[0]
		for round, sent := 0, 0; round < 2; round++ {
			q.port.Must("an SRQ with a limit", q.srq.Modify(verbs.SRQAttr{Limit: 5}, verbs.SRQLimit))
			for left := 5; left >= 2; left-- {
				q.deliver(c, sent, 16)
				sent++
				if left == 4 {
					e := q.port.ExpectEvent(verbs.EventSRQLimitReached)
					q.port.Check(e.SRQ == q.srq, "the SRQ in its event", "%v", e.SRQ)
				}
				q.port.ExpectNoEvent()
			}
			q.post(4)
		}
	}),
}, {
	ID: "srq/error/failed-qp-leaves-the-receives", Cite: ibta("", "srq/5"),
	Title:   "The receives of an SRQ are not flushed when a queue pair on it fails, and remain for the others",
	Sends:   "SENDs to another queue pair on the SRQ when one has gone to ERR",
	Expects: "no completion of a receive for the failed queue pair, and both receives used by the other",
	Defects: []string{"SRQFlushed"}, Run: onSRQ(2, func(q *sharedQueue) {
		pair := q.connectN(2)
		q.port.ToState(pair[0].QP, verbs.QPStateErr)
		q.port.expectNoCompletion()
		c := pair[1]
		for i := range 2 {
			q.deliver(c, i, 16+i)
		}
	}),
}, {
	ID: "srq/error/last-wqe-reached-reported", Cite: ibta("", "srq/5"),
	Title:   "A failed queue pair on an SRQ raises LAST_WQE_REACHED",
	Sends:   "nothing to one queue pair, and the FIRST packet of a SEND to another; both are moved to ERR",
	Expects: "one LAST_WQE_REACHED of each, and WR_FLUSH_ERR for the receive that the SEND has used",
	Defects: []string{"NoLastWQEEvent", "TakenSRQReceiveLost"}, Run: onSRQ(2, func(q *sharedQueue) {
		for i, c := range q.connectN(2) {
			if i == 1 {
				c.exchange(ib.Send(c.PeerPSN(0), Data(2*MTU), MTU)[0].AckReq(), c.deviceAck(0, 0))
			}
			q.port.ExpectNoEvent()
			q.port.ToState(c.QP, verbs.QPStateErr)
			if i == 1 {
				wc := c.NextCompletion()
				c.Check(wc.Status == verbs.WCWRFlushErr && q.free[wc.WRID] && wc.QPN == c.QP.QPN(), "a flushed receive of the SRQ", "%s", rig.Describe(&wc))
			}
			c.expectQPEvent(verbs.EventQPLastWQEReached)
			q.port.expectNoMoreEvents()
			q.port.ExpectNoCompletion()
		}
	}),
}})

// sharedQueue is a shared receive queue. Its receives may complete in any order, each once.
type sharedQueue struct {
	port *Port
	srq  verbs.SRQ
	mem  *rig.Memory
	free map[uint64]bool // posted receives, by ID
	next uint64          // ID of the next receive
}

const (
	srqRecvLen = 3 << 10 // length of each receive
	srqMaxWR   = 18      // not a power of two, to which a device may round its ring
)

// onSRQ makes the body of a case that uses a shared receive queue with this many receives.
func onSRQ(receives int, body func(*sharedQueue)) func(*conformance.Bench) error {
	return OnPort(func(p *Port) { body(p.newSharedQueue(receives)) })
}

// newSharedQueue returns a shared receive queue with this many posted receives, with IDs from 1 on.
func (p *Port) newSharedQueue(receives int) *sharedQueue {
	q := &sharedQueue{port: p, mem: p.Memory(srqMaxWR*srqRecvLen, verbs.AccessLocalWrite), free: make(map[uint64]bool), next: 1}
	q.srq = p.CreateSRQ(verbs.SRQInit{PD: p.PD, MaxWR: srqMaxWR, MaxSGE: 1})
	q.post(receives)
	return q
}

// post posts n receives.
func (q *sharedQueue) post(n int) {
	for range n {
		id := q.next
		q.next++
		q.port.PostRecv(q.srq, id, q.mem.SGE(q.offset(id), srqRecvLen))
		q.free[id] = true
	}
}

// offset returns the offset of a receive's buffer. Buffers are reused after srqMaxWR receives.
func (q *sharedQueue) offset(id uint64) int { return int(id-1) % srqMaxWR * srqRecvLen }

// connectN makes n RC connections on the queue. The peer has the same QPN in all of them:
// a case must read the responses of one before it uses another.
func (q *sharedQueue) connectN(n int) []*Conn {
	all := make([]*Conn, n)
	for i := range all {
		all[i] = q.port.connect(Setup{srq: q.srq})
	}
	return all
}

// expectDelivered fails the case unless the next completion is that of a message to this
// connection, in a receive that was not used before.
func (q *sharedQueue) expectDelivered(c *Conn, want []byte) {
	wc := c.NextCompletion()
	switch {
	case wc.Status != verbs.WCSuccess || int(wc.ByteLen) != len(want) || wc.QPN != c.QP.QPN():
		c.Fail(fmt.Sprintf("%d bytes of queue pair %#x", len(want), uint32(c.QP.QPN())), "%s, queue pair %#x", rig.Describe(&wc), uint32(wc.QPN))
	case !q.free[wc.WRID]:
		c.Fail("a receive that no other message has used", "receive %d", wc.WRID)
	}
	delete(q.free, wc.WRID)
	c.ExpectBytes(q.mem, q.offset(wc.WRID), want)
}

// deliver sends the connection's k-th message, of n bytes, which the device must acknowledge and
// deliver.
func (q *sharedQueue) deliver(c *Conn, k, n int) {
	c.exchange(c.peerSend(k, n), c.deviceAck(k, uint32(k+1)))
	q.expectDelivered(c, Data(n))
}

// expectUsedUp fails the case unless all receives have completed.
func (q *sharedQueue) expectUsedUp() {
	q.port.Check(len(q.free) == 0, "all receives used", "%d left", len(q.free))
}

var srqSizeCases = conformance.Group{Needs: verbs.CapSRQ, Labels: labelRC}.Cases([]conformance.Case{{
	ID: "srq/limit/beyond-the-size-refused", Cite: ibta("", "srq/8"), Needs: verbs.CapRC,
	Title:   "A limit that is larger than the SRQ is refused, and changes nothing",
	Sends:   "nothing",
	Expects: "a limit of the size plus one is refused and not set, and a limit of the size is accepted",
	Defects: []string{"SRQUnchecked"}, Run: OnPort(func(p *Port) {
		srq := p.newSharedQueue(4).srq
		was := p.srqAttr(srq)
		p.MustFail("a limit beyond the size", srq.Modify(verbs.SRQAttr{Limit: was.MaxWR + 1}, verbs.SRQLimit), nil)
		now := p.srqAttr(srq)
		p.Check(now == was, fmt.Sprintf("the attributes %+v as before", was), "%+v", now)
		p.Must("a limit of the size", srq.Modify(verbs.SRQAttr{Limit: was.MaxWR}, verbs.SRQLimit))
	}),
}, {
	ID: "srq/size/below-what-is-queued-refused", Cite: ibta("", "srq/8"), Needs: verbs.CapRC,
	Labels:  []string{conformance.Dangerous}, // Linux 6.1 loses its rxe device
	Title:   "An SRQ cannot be resized below its posted receives, and a refused resize loses none",
	Sends:   "SENDs, after a resize below the number of posted receives",
	Expects: "the resize is refused, and every receive is used",
	Defects: []string{"SRQUnchecked"}, Run: onSRQ(4, func(q *sharedQueue) {
		for _, size := range []int{3, 1, 0} {
			q.port.MustFail(fmt.Sprintf("a size of %d for an SRQ with 4 receives", size), q.srq.Modify(verbs.SRQAttr{MaxWR: size}, verbs.SRQMaxWR), nil)
		}
		c := q.connectN(1)[0]
		for i := range 4 {
			q.deliver(c, i, 16)
		}
	}),
}, {
	ID: "srq/size/beyond-the-device-refused", Cite: ibta("", "srq/8"),
	Title:   "An SRQ with more receives or longer scatter lists than the device claims is refused",
	Sends:   "nothing",
	Expects: "SRQs with one receive or one list entry more than claimed are refused, as is a resize to one receive more; one with as many as claimed is created",
	Defects: []string{"CapsUnchecked"}, Run: OnPort(func(p *Port) {
		attr := p.QueryDevice()
		_, err := p.Device.CreateSRQ(verbs.SRQInit{PD: p.PD, MaxWR: attr.MaxSRQWR + 1, MaxSGE: 1})
		p.MustFail("an SRQ of more receives than claimed", err, nil)
		_, err = p.Device.CreateSRQ(verbs.SRQInit{PD: p.PD, MaxWR: 1, MaxSGE: attr.MaxSRQSGE + 1})
		p.MustFail("an SRQ of longer lists than claimed", err, nil)
		_, err = p.Device.CreateSRQ(verbs.SRQInit{PD: p.PD, MaxWR: attr.MaxSRQWR, MaxSGE: 1})
		p.Must("an SRQ of as many receives as claimed", err)
		srq := p.newSRQ(p.PD)
		was := p.srqAttr(srq)
		p.MustFail("a resize to more receives than claimed", srq.Modify(verbs.SRQAttr{MaxWR: attr.MaxSRQWR + 1}, verbs.SRQMaxWR), nil)
		now := p.srqAttr(srq)
		p.Check(now == was, fmt.Sprintf("the attributes %+v as before", was), "%+v", now)
	}),
}, {
	ID: "srq/size/excess-receive-refused", Cite: ibta("", "srq/9"), Needs: verbs.CapRC,
	Title:   "Receives that exceed the size of an SRQ are refused, and no other is lost",
	Sends:   "SENDs, when two receives too many were posted",
	Expects: "as many receives are posted as there is room for, and each is used for one SEND",
	Defects: []string{"OverflowSRQ", "SRQTakesWholeRing"}, Run: onSRQ(0, func(q *sharedQueue) {
		room := q.port.srqAttr(q.srq).MaxWR
		// The device may have rounded the size up.
		var wrs []verbs.RecvWR
		for i := range room + 2 {
			wrs = append(wrs, verbs.RecvWR{WRID: uint64(i + 1), SGL: q.mem.SGL(i%srqMaxWR*srqRecvLen, srqRecvLen)})
		}
		n, err := q.srq.PostRecv(wrs)
		q.port.MustFail("one receive too many", err, nil)
		q.port.Check(n == room, fmt.Sprintf("%d receives posted", room), "%d", n)
		n, err = q.srq.PostRecv(wrs[room:])
		q.port.MustFail("another receive too many", err, nil)
		q.port.Check(n == 0, "none posted", "%d", n)
		for i := range room {
			q.free[uint64(i+1)] = true
		}
		c := q.connectN(1)[0]
		for i := range room {
			q.deliver(c, i, 16+i%32)
		}
		q.expectUsedUp()
	}),
}})

// srqAttr returns the attributes of a shared receive queue.
func (p *Port) srqAttr(srq verbs.SRQ) verbs.SRQAttr {
	a, err := srq.Query()
	p.Must("an SRQ that can be queried", err)
	return a
}
