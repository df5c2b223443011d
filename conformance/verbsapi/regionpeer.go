package verbsapi

import (
	"fmt"
	"math"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// regionPeerCases test remote access to regions.
var regionPeerCases = alsoOverRD([]conformance.Case{{
	ID: "verbs/mr/peers-stay-within", Cite: manual("Table 63", "verbs/mr/11"),
	Run: onDevices(func(d *devices) {
		m := d.dut.Memory(64, regionAccess(d.dut, rig.RemoteAccess(d.dut)))
		for _, op := range []verbs.WROpcode{verbs.OpRDMARead, verbs.OpRDMAWrite} {
			for _, off := range []int{-1, 57} {
				l := d.newPair(setup{})
				l.expectExecuted(op, m, m.Remote(0), 0)
				l.expectExecuted(op, m, m.Remote(56), 56)
				l.expectRefused(fmt.Sprintf("%v 8 bytes from %d on of 64", op, off), l.partner.rdmaWR(op, 9, 8, m.Remote(off)))
			}
		}
		d.dut.ExpectUnchanged(m, 0, 0)
	}),
}, {
	ID: "verbs/mr/peers-do-not-wrap-around", Cite: manual("Table 63", "verbs/mr/11"),
	Run: onDevices(func(d *devices) {
		m := d.dut.Memory(64, regionAccess(d.dut, rig.RemoteAccess(d.dut)))
		for _, op := range []verbs.WROpcode{verbs.OpRDMARead, verbs.OpRDMAWrite} {
			for _, at := range []uint64{math.MaxUint64 - 3, math.MaxUint64 - 7} {
				l := d.newPair(setup{})
				l.expectRefused(fmt.Sprintf("%v 8 bytes at %#x", op, at), l.partner.rdmaWR(op, 9, 8, verbs.Remote{Addr: at, RKey: m.RKey()}))
			}
		}
		d.dut.ExpectUnchanged(m, 0, 0)
	}),
}, {
	ID: "verbs/mr/peers-have-the-rights-given", Cite: manual("ibv_reg_mr(3)", "verbs/mr/12"),
	Run: onDevices(func(d *devices) {
		ops := map[verbs.WROpcode]verbs.Access{verbs.OpRDMARead: verbs.AccessRemoteRead, verbs.OpRDMAWrite: verbs.AccessRemoteWrite}
		for _, has := range []verbs.Access{0, verbs.AccessRemoteRead, verbs.AccessRemoteWrite} {
			m := d.dut.Memory(64, has|verbs.AccessLocalWrite)
			for _, op := range []verbs.WROpcode{verbs.OpRDMARead, verbs.OpRDMAWrite} {
				l := d.newPair(setup{})
				if has&ops[op] != 0 {
					l.expectExecuted(op, m, m.Remote(0), 0)
					continue
				}
				l.expectRefused(fmt.Sprintf("%v memory with rights %#x", op, uint32(has)), l.partner.rdmaWR(op, 9, 8, m.Remote(0)))
			}
			d.dut.ExpectUnchanged(m, 0, 0)
		}
	}),
}, {
	ID: "verbs/mr/overlapping-regions-rights", Cite: manual("ibv_reg_mr(3)", "verbs/mr/7"),
	Run: onDevices(func(d *devices) {
		const local = verbs.AccessLocalWrite
		m := d.dut.Memory(64, local|verbs.AccessRemoteWrite)
		places := []verbs.Remote{m.Remote(0)}
		for i, rights := range []verbs.Access{local, local | verbs.AccessRemoteWrite} {
			mr, err := d.dut.PD.RegMR(verbs.MRInit{Buf: m.Buf, Access: rights})
			d.dut.Must(fmt.Sprintf("region %d over the same memory", i+2), err)
			places = append(places, verbs.Remote{Addr: mr.Addr(), RKey: mr.RKey()})
		}
		for i, at := range places {
			l := d.newPair(setup{})
			if i == 1 {
				l.expectRefused("write memory by a key without rights", l.partner.rdmaWR(verbs.OpRDMAWrite, 9, 8, at))
				d.dut.ExpectUnchanged(m, 0, 0)
				continue
			}
			l.expectExecuted(verbs.OpRDMAWrite, m, at, 0)
		}
	}),
}, {
	ID: "verbs/mr/zero-based", Cite: manual("o10-36.2.2", "verbs/mr/13"), Needs: verbs.CapZeroBased,
	Run: onReliable(func(l *qpPair) {
		m := l.dut.Memory(64, regionAccess(l.dut.Rig, rig.RemoteAccess(l.dut.Rig))|verbs.AccessZeroBased)
		l.dut.Check(m.Addr() == 0, "a region at address 0", "%#x", m.Addr())
		at := func(addr uint64) verbs.Remote { return verbs.Remote{Addr: addr, RKey: m.RKey()} }
		l.partner.expectRead(at(0), m.Buf[:8])
		l.partner.expectRead(at(56), m.Buf[56:])
		l.expectRefused("read beyond a zero-based region", l.partner.readWR(9, recvOffset, 8, at(57)))
	}),
}, {
	ID: "verbs/pd/remote-key-of-another-domain", Cite: manual("ibv_alloc_pd(3)", "verbs/pd/3"),
	Run: onReliable(func(l *qpPair) {
		other := l.dut.MemoryIn(otherPD(l.dut.Rig), 64, regionAccess(l.dut.Rig, rig.RemoteAccess(l.dut.Rig)))
		l.expectRefused("write to memory of another domain", l.partner.writeWR(1, 0, 16, other.Remote(0)))
		l.dut.ExpectUnchanged(other, 0, 0)
	}),
}, {
	ID: "verbs/mr/read-only-is-not-written", Cite: manual("ibv_reg_mr(3)", "verbs/mr/5"),
	Run: onReliable(func(l *qpPair) {
		m := l.dut.Memory(128, verbs.AccessRemoteRead)
		if n, err := l.dut.qp.PostRecv([]verbs.RecvWR{{WRID: 1, SGL: m.SGL(0, 128)}}); err != nil {
			l.dut.Check(n == 0, "no receive posted if it is refused", "%d", n)
			return
		}
		l.partner.PostSend(l.partner.qp, l.partner.sendWR(2, 0, 32))
		wc := l.dut.NextCompletion()
		l.dut.Check(wc.Status == verbs.WCLocProtErr || wc.Status == verbs.WCLocAccessErr,
			"a receive that fails without local write", "%s", rig.Describe(&wc))
		l.dut.ExpectUnchanged(m, 0, 0)
	}),
}, {
	ID: "verbs/mr/closed-remote-key", Cite: manual("ibv_dereg_mr(3)", "verbs/mr/9"),
	Run: onReliable(func(l *qpPair) {
		m := l.dut.Memory(64, regionAccess(l.dut.Rig, rig.RemoteAccess(l.dut.Rig)))
		at := m.Remote(0)
		l.partner.PostSend(l.partner.qp, l.partner.writeWR(1, 0, 16, at), l.partner.readWR(2, recvOffset, 16, at))
		l.partner.ExpectCompletion(1, verbs.WCSuccess)
		l.partner.ExpectCompletion(2, verbs.WCSuccess) // the WRITE is in memory now, on any transport
		l.dut.ExpectBytes(m, 0, l.partner.mem.Buf[:16])
		l.dut.Must("a region that can be closed", m.Close())
		m.Snapshot()
		l.expectRefused("write to a closed region", l.partner.writeWR(3, 32, 16, at))
		l.dut.ExpectUnchanged(m, 0, 0)
	}),
}, {
	ID: "verbs/flush/too-long-for-the-receive", Cite: manual("ibv_poll_cq(3)", "verbs/flush/4"),
	Run: onReliable(func(l *qpPair) {
		m := l.dut.Memory(128, verbs.AccessLocalWrite)
		l.dut.PostRecv(l.dut.qp, 1, m.SGE(0, 64+l.dut.grhLen()))
		l.partner.PostSend(l.partner.qp, l.partner.sendWR(2, 0, 65))
		l.dut.ExpectCompletion(1, verbs.WCLocLenErr)
		l.dut.ExpectUnchanged(m, 0, 64+l.dut.grhLen())
		l.dut.AwaitState(l.dut.qp, errState)
	}),
}})

// rdmaWR returns a READ or WRITE of n bytes of the peer's memory.
func (e *endpoint) rdmaWR(op verbs.WROpcode, id uint64, n int, at verbs.Remote) verbs.SendWR {
	wr := e.writeWR(id, recvOffset, n, at)
	wr.Opcode = op
	return wr
}

// expectExecuted fails the case unless a READ or WRITE of the partner is executed on the
// eight bytes at off of m. It leaves m with its original content.
func (l *qpPair) expectExecuted(op verbs.WROpcode, m *rig.Memory, at verbs.Remote, off int) {
	const id = 76
	if op == verbs.OpRDMARead {
		l.partner.expectRead(at, m.Buf[off:][:8])
		return
	}
	was := [8]byte(m.Buf[off:])
	copy(m.Buf[off:], "changed!")
	l.dut.QueryPort() // makes the change visible to the device
	copy(l.partner.mem.Buf[sendOffset:], was[:])
	l.partner.complete(l.partner.writeWR(id, sendOffset, 8, at))
	// A READ shows that the WRITE is in memory if the transport does not acknowledge it.
	l.partner.expectRead(l.dut.remote(0), l.dut.mem.Buf[:8])
	l.dut.ExpectBytes(m, off, was[:])
}
