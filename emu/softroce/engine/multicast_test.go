package engine

import (
	"net/netip"
	"testing"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// group is a multicast address of the flavour's IP version.
func (p *peer) group(n byte) netip.Addr {
	if p.addr.Is4() {
		return netip.AddrFrom4([4]byte{239, 1, 1, n})
	}
	return netip.AddrFrom16([16]byte{0: 0xff, 1: 0x0e, 15: n})
}

// sendTo delivers a datagram for a group to the NIC.
func (p udPeer) sendTo(group netip.Addr, qpn uint32, edits ...edit) {
	p.Helper()
	d := p.build(wire.OpSendOnly, 0, append([]edit{datagram, func(k *wire.Packet) { k.BTH.DestQP = qpn }}, edits...)...)
	d.Dst = netip.AddrPortFrom(group, wire.Port)
	p.seal(&d)
	p.deliver(d)
}

func (p *peer) attach(q *QP, group netip.Addr) {
	p.Helper()
	must.Do(p, p.h.nic.Attach(q, group))
}

const multicastQPN = uint32(verbs.MulticastQPN)

// ud/13: A multicast datagram reaches every attached QP once. An error of one QP
// does not affect the others.
func TestUDMulticastReachesEveryAttachedQPOnce(t *testing.T) {
	eachUD(t, setup{}, func(p udPeer) {
		cqs := make([]*nic.CQ, 4)
		qps := make([]*QP, len(cqs))
		for i := range cqs {
			cqs[i] = p.cqOf(8)
			qps[i] = p.replaceByUD(func(c *QPConfig) { c.RecvCQ = cqs[i] })
			p.recv(uint64(2*i), 80)
			p.recv(uint64(2*i+1), 80)
		}
		p.attach(qps[0], p.group(1))
		p.attach(qps[0], p.group(1))
		p.attach(qps[1], p.group(1))
		p.attach(qps[1], p.group(2))
		p.attach(qps[2], p.group(2))
		p.sendTo(p.group(1), multicastQPN, data(4))
		p.polled(cqs[0], "0 SUCCESS RECV 44B")
		p.polled(cqs[1], "2 SUCCESS RECV 44B")
		p.polled(cqs[2])
		p.polled(cqs[3])
		p.drops()
		if dst := p.recvBuf(0, 40); p.addr.Is6() && [16]byte(dst[24:]) != p.group(1).As16() || p.addr.Is4() && [4]byte(dst[36:]) != p.group(1).As4() {
			p.Errorf("the header area is %x", dst)
		}
		p.h.modify(qps[1], verbs.QPAttr{QKey: 5}, verbs.QPAttrQKey) // not that of the group
		p.sendTo(p.group(2), multicastQPN, data(8))
		p.polled(cqs[1])
		p.polled(cqs[2], "4 SUCCESS RECV 48B")
		p.drops("drop_qkey 1")
	})
}

// bth/qpn/2, ud/13: A multicast packet needs a group address, QP number 0xffffff and UD.
func TestMulticastNeedsGroupAddressAndQPN(t *testing.T) {
	eachUD(t, setup{}, func(p udPeer) {
		p.recv(1, 80)
		p.attach(p.q, p.group(1))
		p.sendTo(p.group(1), p.q.num, data(4))                              // QP number at a group address
		p.sendTo(p.h.addr, multicastQPN, data(4))                           // multicast QP number at a unicast address
		p.sendTo(p.group(3), multicastQPN, data(4))                         // a group without members
		p.sendTo(p.group(1), multicastQPN, over(wire.TransportRC), data(4)) // over RC
		p.sendTo(p.group(1), multicastQPN, over(wire.TransportUC), data(4))
		p.drops("drop_qpn 5")
		p.sendTo(p.group(1), multicastQPN, func(k *wire.Packet) { k.BTH.PKey = 0x1234 }, data(4))
		p.drops("drop_qpn 5", "drop_pkey 1")
		p.wcs()
		p.expectMemoryUnchanged()
	})
}

// ud/14: An attached QP cannot be destroyed. A detached QP receives no more multicast datagrams.
func TestAttachedQPCannotBeDestroyed(t *testing.T) {
	eachUD(t, setup{}, func(p udPeer) {
		p.recv(1, 80)
		p.attach(p.q, p.group(1))
		p.attach(p.q, p.group(2))
		must.Do(p, p.h.nic.Detach(p.q, p.group(1)))
		must.Fail(p, "destroyed while attached", p.h.nic.DestroyQP(p.q), verbs.ErrBusy)
		p.sendTo(p.group(1), multicastQPN, data(4))
		p.wcs()
		p.drops("drop_qpn 1")
		must.Fail(p, "detached twice", p.h.nic.Detach(p.q, p.group(1)), verbs.ErrInvalid)
		must.Do(p, p.h.nic.Detach(p.q, p.group(2)))
		must.Do(p, p.h.nic.DestroyQP(p.q))
		must.Fail(p, "attached after destroy", p.h.nic.Attach(p.q, p.group(1)), verbs.ErrInvalid)
	})
}

// A UD QP can send to a multicast group.
func TestUDSendsToMulticastGroup(t *testing.T) {
	eachUD(t, setup{}, func(p udPeer) {
		ah := p.handle(func(a *verbs.AHAttr) { a.GRH.DGID = verbs.GIDFrom(p.group(1)) })
		p.postTo(1, ah, 4, func(wr *verbs.SendWR) { wr.UD.QPN = verbs.MulticastQPN })
		if n := p.h.nic.Output(p.now, p.ds); n != 1 || p.ds[0].Dst != netip.AddrPortFrom(p.group(1), wire.Port) {
			p.Fatalf("%d datagrams, the first to %v", n, p.ds[0].Dst)
		}
		var k wire.Packet
		if err := k.Parse(p.ds[0].Payload); err != nil || k.BTH.DestQP != multicastQPN {
			p.Errorf("sent %+v, %v", k, err)
		}
		p.wcs("1 SUCCESS SEND")
	})
}

func TestMulticastGroupsAndMembersAreLimited(t *testing.T) {
	eachUD(t, setup{nic: func(c *Config) { c.Limits.McastGroups, c.Limits.McastQPs = 2, 1 }}, func(p udPeer) {
		other := p.h.qp(verbs.QPTypeUD, nil)
		p.attach(p.q, p.group(1))
		p.attach(p.q, p.group(2))
		p.attach(p.q, p.group(2)) // already attached
		must.Fail(p, "a third group", p.h.nic.Attach(p.q, p.group(3)), verbs.ErrNoMemory)
		must.Fail(p, "a second member", p.h.nic.Attach(other, p.group(1)), verbs.ErrNoMemory)
		must.Fail(p, "no group", p.h.nic.Attach(other, p.addr), verbs.ErrInvalid)
		must.Fail(p, "not UD", p.h.nic.Attach(p.h.qp(verbs.QPTypeRC, nil), p.group(1)), verbs.ErrInvalid)
		must.Do(p, p.h.nic.Detach(p.q, p.group(1)))
		p.attach(other, p.group(3)) // uses the free entry
	})
}
