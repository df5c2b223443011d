package roce

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var srqSizeCases = conformance.Group{Needs: verbs.CapSRQ, Labels: labelRC}.Cases([]conformance.Case{{
	ID: "srq/limit/beyond-the-size-refused", Cite: ibta("", "roce/srq/8"), Needs: verbs.CapRC,
	Run: OnPort(func(p *Port) {
		srq := p.newSharedQueue(4).srq
		was := p.srqAttr(srq)
		p.MustFail("a limit beyond the size", srq.Modify(verbs.SRQAttr{Limit: was.MaxWR + 1}, verbs.SRQLimit), nil)
		now := p.srqAttr(srq)
		p.Check(now == was, fmt.Sprintf("the attributes %+v as before", was), "%+v", now)
		p.Must("a limit of the size", srq.Modify(verbs.SRQAttr{Limit: was.MaxWR}, verbs.SRQLimit))
	}),
}, {
	ID: "srq/size/below-what-is-queued-refused", Cite: ibta("", "roce/srq/8"), Needs: verbs.CapRC,
	Labels: []string{conformance.Dangerous}, // Linux 6.1 loses its rxe device
	Run: OnPort(func(p *Port) {
		q := p.newSharedQueue(4)
		for _, size := range []int{3, 1, 0} {
			p.MustFail(fmt.Sprintf("a size of %d for an SRQ with 4 receives", size), q.srq.Modify(verbs.SRQAttr{MaxWR: size}, verbs.SRQMaxWR), nil)
		}
		c := q.connect(1)[0]
		for i := range 4 {
			c.exchange(ib.SendOnly(c.PeerPSN(i), Data(16)).AckReq(), ib.Ack(c.PeerPSN(i), uint32(i+1)))
			q.expectDelivered(c, Data(16))
		}
	}),
}, {
	ID: "srq/size/beyond-the-device-refused", Cite: ibta("", "roce/srq/8"),
	Run: OnPort(func(p *Port) {
		attr := p.QueryDevice()
		_, err := p.Device.CreateSRQ(verbs.SRQInit{PD: p.PD, MaxWR: attr.MaxSRQWR + 1, MaxSGE: 1})
		p.MustFail("an SRQ of more receives than claimed", err, nil)
		_, err = p.Device.CreateSRQ(verbs.SRQInit{PD: p.PD, MaxWR: 1, MaxSGE: attr.MaxSRQSGE + 1})
		p.MustFail("an SRQ of longer lists than claimed", err, nil)
		_, err = p.Device.CreateSRQ(verbs.SRQInit{PD: p.PD, MaxWR: attr.MaxSRQWR, MaxSGE: 1})
		p.Must("an SRQ of as many receives as claimed", err)
	}),
}, {
	ID: "srq/size/excess-receive-refused", Cite: ibta("", "roce/srq/9"), Needs: verbs.CapRC,
	Run: OnPort(func(p *Port) {
		q := p.newSharedQueue(0)
		room := p.srqAttr(q.srq).MaxWR
		// The device may have rounded the size up.
		var wrs []verbs.RecvWR
		for i := range room + 2 {
			wrs = append(wrs, verbs.RecvWR{WRID: uint64(i + 1), SGL: q.mem.SGL(i%srqMaxWR*srqRecvLen, srqRecvLen)})
		}
		n, err := q.srq.PostRecv(wrs)
		p.MustFail("one receive too many", err, nil)
		p.Check(n == room, fmt.Sprintf("%d receives posted", room), "%d", n)
		n, err = q.srq.PostRecv(wrs[room:])
		p.MustFail("another receive too many", err, nil)
		p.Check(n == 0, "none posted", "%d", n)
		for i := range room {
			q.free[uint64(i+1)] = true
		}
		c := q.connect(1)[0]
		for i := range room {
			c.exchange(ib.SendOnly(c.PeerPSN(i), Data(16+i%32)).AckReq(), ib.Ack(c.PeerPSN(i), uint32(i+1)))
			q.expectDelivered(c, Data(16+i%32))
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
