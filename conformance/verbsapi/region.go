package verbsapi

import (
	"fmt"
	"math"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var regionCases = []conformance.Case{{
	ID: "verbs/mr/address-as-asked", Cite: cite("ibv_reg_mr_iova(3)", "verbs/mr/1"),
	Title:   "A region has the length of its memory and the requested address, and can be used at it",
	Sends:   "a message from a region that was registered at a chosen address",
	Expects: "that address, that length, and the bytes at the peer",
	Defects: []string{"MRAddrIgnored"}, Run: onPair(setup{}, func(l *qpPair) {
		const at = 0x7_0000_1000
		buf := rig.Pattern(100, 3)
		mr := rig.Result(l.dut.PD.RegMR(verbs.MRInit{Buf: buf, Addr: at}))(l.dut, "a region at a chosen address")
		l.dut.Check(mr.Addr() == at && mr.Len() == len(buf), fmt.Sprintf("%d bytes at %#x", len(buf), uint64(at)), "%d at %#x", mr.Len(), mr.Addr())
		l.dut.expectArrives(l.partner, l.dut.sendOf(2, verbs.SGE{Addr: at + 10, Length: 50, LKey: mr.LKey()}), buf[10:60])
	}),
}, {
	ID: "verbs/mr/keys-of-their-own", Cite: cite("ibv_reg_mr(3)", "verbs/mr/2"),
	Title:   "No two existing regions have the same L_Key or R_Key",
	Expects: "200 different L_Keys and 200 different R_Keys",
	Defects: []string{"MRKeysRepeat"}, Run: rig.Body(func(r *rig.Rig) {
		// L_Key and R_Key of a region may be equal.
		lkeys, rkeys := make(map[verbs.LKey]bool), make(map[verbs.RKey]bool)
		for i := range 200 {
			m := r.Memory(16, verbs.AccessLocalWrite|verbs.AccessRemoteRead)
			r.Check(!lkeys[m.LKey()] && !rkeys[m.RKey()], fmt.Sprintf("new keys for region %d", i+1), "L_Key %#x, R_Key %#x of an earlier one", m.LKey(), m.RKey())
			lkeys[m.LKey()], rkeys[m.RKey()] = true, true
		}
	}),
}, {
	ID: "verbs/mr/remote-write-needs-local-write", Cite: cite("ibv_reg_mr(3)", "verbs/mr/3"),
	Title:   "Remote write and remote atomic need local write",
	Expects: "remote write and remote atomic without local write are refused as invalid; remote read alone, and no right at all, are accepted",
	Defects: []string{"MRAccessUnchecked"}, Run: rig.Body(func(r *rig.Rig) {
		buf := make([]byte, 64)
		for _, access := range []verbs.Access{verbs.AccessRemoteWrite, verbs.AccessRemoteAtomic, verbs.AccessRemoteWrite | verbs.AccessRemoteRead} {
			_, err := r.PD.RegMR(verbs.MRInit{Buf: buf, Access: access})
			r.MustFail(fmt.Sprintf("a region with rights %#x and no local write", uint32(access)), err, verbs.ErrInvalid)
		}
		for _, access := range []verbs.Access{0, verbs.AccessRemoteRead, verbs.AccessLocalWrite, verbs.AccessLocalWrite | rig.RemoteAccess(r)} {
			_, err := r.PD.RegMR(verbs.MRInit{Buf: buf, Access: access})
			r.Must(fmt.Sprintf("a region with rights %#x", uint32(access)), err)
		}
	}),
}, {
	ID: "verbs/mr/hints-are-no-rights", Cite: cite("ibv_reg_mr(3)", "verbs/mr/4"),
	Title:   "Optional access flags do not make a registration fail",
	Expects: "a region with relaxed ordering and with the other flags of the optional range",
	Defects: []string{"HintsRefused"}, Run: rig.Body(func(r *rig.Rig) {
		r.Memory(64, verbs.AccessLocalWrite|verbs.AccessRelaxedOrdering)
		r.Memory(64, verbs.AccessLocalWrite|verbs.AccessOptionalMask)
	}),
}, {
	ID: "verbs/mr/empty-region", Cite: cite("ibv_reg_mr(3)", "verbs/mr/6"), Level: conformance.Should,
	Title:   "A region of no bytes can be registered, and grants access to no memory",
	Sends:   "a message of no bytes from it, and one of a byte",
	Expects: "a region of length 0; a message of no bytes at the partner; a message of one byte is refused or fails",
	Defects: []string{"NoEmptyMR"}, Run: onPair(setup{}, func(l *qpPair) {
		m := l.dut.Memory(0, verbs.AccessLocalWrite)
		l.dut.Check(m.Len() == 0, "a region of 0 bytes", "%d", m.Len())
		l.dut.expectArrives(l.partner, l.dut.sendOf(2, m.SGE(0, 0)), nil)
		l.dut.expectFailure("a byte of an empty region", l.dut.sendOf(2, m.SGE(0, 1)))
	}),
}, {
	ID: "verbs/mr/overlapping-regions-stand-alone", Cite: cite("ibv_reg_mr(3)", "verbs/mr/7"),
	Title:   "The same memory can be registered several times, and the regions are independent",
	Sends:   "messages from a region when another one over the same memory has been closed",
	Expects: "the message at the peer",
	Defects: []string{"DeregOverlapping"}, Run: onPair(setup{}, func(l *qpPair) {
		buf := rig.Pattern(128, 9)
		var regions [3]verbs.MR
		for i := range regions {
			var err error
			regions[i], err = l.dut.PD.RegMR(verbs.MRInit{Buf: buf[16*i:]})
			l.dut.Must(fmt.Sprintf("region %d over the same memory", i+1), err)
		}
		l.dut.Must("a region that can be closed", regions[0].Close())
		l.dut.expectArrives(l.partner, l.dut.sendOf(2, verbs.SGEOf(regions[1], 4, 60)), buf[20:80])
	}),
}, {
	ID: "verbs/mr/beyond-its-end", Cite: cite("ibv_post_send(3)", "verbs/mr/8"),
	// verbs/flush/behind-the-cause checks the status.
	Title:   "A list entry that exceeds its region by a byte at either end fails",
	Sends:   "requests that begin a byte before a region, or end a byte after it",
	Expects: "each is refused or completes with an error",
	Defects: []string{"SGEClamped"}, Run: rig.PairBody(func(d *rig.Pair) {
		for _, off := range []int{-1, 1} {
			l := newPair(d, setup{})
			m := d.DUT.Memory(64, verbs.AccessLocalWrite)
			l.partner.postRecv(1, recvOffset, 128)
			list := verbs.SGE{Addr: m.Addr() + uint64(off), Length: 64, LKey: m.LKey()}
			l.dut.expectFailure(fmt.Sprintf("64 bytes from %d on of 64", off), l.dut.sendOf(2, list))
		}
	}),
}, {
	ID: "verbs/mr/closed-local-key", Cite: cite("ibv_dereg_mr(3)", "verbs/mr/9"),
	Title:   "The L_Key of a deregistered region is invalid",
	Sends:   "a request with the L_Key of a closed region",
	Expects: "it is refused or completes with an error",
	Defects: []string{"StaleKeys"}, Run: onPair(setup{}, func(l *qpPair) {
		m := l.dut.Memory(64, verbs.AccessLocalWrite)
		wr := l.dut.sendOf(2, m.SGE(0, 64))
		l.partner.postRecv(1, recvOffset, 64)
		l.dut.Must("a region that can be closed", m.Close())
		l.dut.expectFailure("a request from a closed region", wr)
	}),
}, {
	ID: "verbs/mr/old-keys-open-nothing-new", Cite: cite("ibv_dereg_mr(3)", "verbs/mr/9"), Level: conformance.Should,
	Title:   "The keys of a deregistered region are not valid for a new region of the same memory",
	Sends:   "a request with address and L_Key of a closed region, whose memory has been registered again",
	Expects: "other keys for the new region, and the request is refused or fails",
	Defects: []string{"StaleKeys"}, Run: onPair(setup{}, func(l *qpPair) {
		// Keys may be reused later. If the next registration had them, a late request
		// would access the new region.
		buf := make([]byte, 64)
		// With remote read: a device need not allocate an R_Key without remote
		// access.
		old := rig.Result(l.dut.PD.RegMR(verbs.MRInit{Buf: buf, Access: verbs.AccessRemoteRead}))(l.dut, "a region")
		was, rkey := verbs.SGEOf(old, 0, 64), old.RKey()
		l.dut.Must("a region that can be closed", old.Close())
		again := rig.Result(l.dut.PD.RegMR(verbs.MRInit{Buf: buf, Addr: was.Addr, Access: verbs.AccessRemoteRead}))(l.dut, "the region again")
		l.dut.Check(again.LKey() != was.LKey && again.RKey() != rkey, "other keys than before", "L_Key %#x, R_Key %#x", again.LKey(), again.RKey())
		l.partner.postRecv(1, recvOffset, 64)
		l.dut.expectFailure("a request with the old key", l.dut.sendOf(2, was))
	}),
}, {
	ID: "verbs/mr/busy-with-a-window", Cite: cite("ibv_dereg_mr(3)", "verbs/mr/10"), Needs: verbs.CapMWType2,
	Title:   "A region cannot be closed while a window is bound to it",
	Expects: "a refusal with any error until the window is freed; its domain stays in use until the region is closed",
	Defects: []string{"BusyClosed", "DeregBound", "BusyMRFreesPD"}, Run: rig.PairBody(func(d *rig.Pair) {
		d.DUT.PD = otherPD(d.DUT)
		l := newPair(d, setup{})
		m := l.dut.Memory(64, regionAccess(l.dut.Rig, rig.RemoteAccess(l.dut.Rig)))
		mw := l.dut.newWindow(verbs.MWType2)
		l.dut.bind(mw, bindAll(m, verbs.AccessRemoteRead))
		l.dut.MustFail("closing a region with a bound window", m.Close(), nil) // the manual page names no error
		l.dut.Must("a window that can be freed", mw.Close())
		l.dut.Must("a queue pair that can be closed", l.dut.qp.Close())
		l.dut.Must("another region that can be closed", l.dut.mem.Close())
		l.dut.MustFail("closing the domain of the region", l.dut.PD.Close(), verbs.ErrBusy)
		l.dut.Must("a region without windows that can be closed", m.Close())
	}),
}}

// regionPeerCases test remote access to regions.
var regionPeerCases = alsoOverRD([]conformance.Case{{
	ID: "verbs/mr/peers-stay-within", Cite: cite("Table 63", "verbs/mr/11"),
	Title:   "A peer can access every byte of a region by its key, and none before or after it",
	Sends:   "READs and WRITEs of the peer: of the first and of the last eight bytes of a region, then of eight that begin a byte before it, or end a byte after it",
	Expects: "the bytes for the former; the latter fail, with memory unchanged",
	Defects: []string{"RangeSlack"}, Run: rig.PairBody(func(d *rig.Pair) {
		m := d.DUT.Memory(64, regionAccess(d.DUT, rig.RemoteAccess(d.DUT)))
		for _, op := range []verbs.WROpcode{verbs.OpRDMARead, verbs.OpRDMAWrite} {
			for _, off := range []int{-1, 57} {
				l := newPair(d, setup{})
				l.expectExecuted(op, m, m.Remote(0), 0)
				l.expectExecuted(op, m, m.Remote(56), 56)
				l.expectRefused(fmt.Sprintf("%v 8 bytes from %d on of 64", op, off), l.partner.rdmaWR(op, m.Remote(off)))
			}
		}
		d.DUT.ExpectUntouched(m)
	}),
}, {
	ID: "verbs/mr/peers-do-not-wrap-around", Cite: cite("Table 63", "verbs/mr/11"),
	Title:   "A remote access whose address and length wrap around 2^64 fails",
	Sends:   "READs and WRITEs of the peer by the key of a region: of 8 bytes at 2^64-4 and at 2^64-8",
	Expects: "they fail, with memory unchanged",
	Defects: []string{"WrappingRange"}, Run: rig.PairBody(func(d *rig.Pair) {
		m := d.DUT.Memory(64, regionAccess(d.DUT, rig.RemoteAccess(d.DUT)))
		for _, op := range []verbs.WROpcode{verbs.OpRDMARead, verbs.OpRDMAWrite} {
			for _, at := range []uint64{math.MaxUint64 - 3, math.MaxUint64 - 7} {
				l := newPair(d, setup{})
				l.expectRefused(fmt.Sprintf("%v 8 bytes at %#x", op, at), l.partner.rdmaWR(op, verbs.Remote{Addr: at, RKey: m.RKey()}))
			}
		}
		d.DUT.ExpectUntouched(m)
	}),
}, {
	ID: "verbs/mr/peers-have-the-rights-given", Cite: cite("ibv_reg_mr(3)", "verbs/mr/12"),
	Title:   "A remote READ needs remote read, and a remote WRITE remote write",
	Sends:   "READs and WRITEs of the peer: on memory that may be read, on memory that may be written, and on memory that may be neither",
	Expects: "the permitted ones are executed; the others fail, with memory unchanged",
	Defects: []string{"RightsIgnored"}, Run: rig.PairBody(func(d *rig.Pair) {
		ops := map[verbs.WROpcode]verbs.Access{verbs.OpRDMARead: verbs.AccessRemoteRead, verbs.OpRDMAWrite: verbs.AccessRemoteWrite}
		for _, has := range []verbs.Access{0, verbs.AccessRemoteRead, verbs.AccessRemoteWrite} {
			m := d.DUT.Memory(64, has|verbs.AccessLocalWrite)
			for _, op := range []verbs.WROpcode{verbs.OpRDMARead, verbs.OpRDMAWrite} {
				l := newPair(d, setup{})
				if has&ops[op] != 0 {
					l.expectExecuted(op, m, m.Remote(0), 0)
					continue
				}
				l.expectRefused(fmt.Sprintf("%v memory with rights %#x", op, uint32(has)), l.partner.rdmaWR(op, m.Remote(0)))
			}
			d.DUT.ExpectUntouched(m)
		}
	}),
}, {
	ID: "verbs/mr/overlapping-regions-rights", Cite: cite("ibv_reg_mr(3)", "verbs/mr/7"),
	Title:   "Regions of the same memory have independent access rights",
	Sends:   "WRITEs of the peer to the same bytes by the keys of three regions: one without rights between two that may be written",
	Expects: "the first and the last are executed; the one between fails, with memory unchanged",
	Defects: []string{"RightsIgnored"}, Run: rig.PairBody(func(d *rig.Pair) {
		const local = verbs.AccessLocalWrite
		m := d.DUT.Memory(64, local|verbs.AccessRemoteWrite)
		places := []verbs.Remote{m.Remote(0)}
		for i, rights := range []verbs.Access{local, local | verbs.AccessRemoteWrite} {
			mr := rig.Result(d.DUT.PD.RegMR(verbs.MRInit{Buf: m.Buf, Access: rights}))(d.DUT, fmt.Sprintf("region %d over the same memory", i+2))
			places = append(places, verbs.Remote{Addr: mr.Addr(), RKey: mr.RKey()})
		}
		for i, at := range places {
			l := newPair(d, setup{})
			if i == 1 {
				l.expectRefused("write memory by a key without rights", l.partner.rdmaWR(verbs.OpRDMAWrite, at))
				d.DUT.ExpectUntouched(m)
				continue
			}
			l.expectExecuted(verbs.OpRDMAWrite, m, at, 0)
		}
	}),
}, {
	ID: "verbs/mr/zero-based", Cite: cite("o10-36.2.2", "verbs/mr/13"), Needs: verbs.CapZeroBased,
	Title:   "The addresses of a zero-based region begin at 0",
	Sends:   "READs of the peer at 0 and at 56 of a zero-based region of 64 bytes, then at 57",
	Expects: "a region with address 0; its first and its last bytes; the last READ fails",
	Defects: []string{"ZeroBasedIgnored"}, Run: onPair(setup{}, func(l *qpPair) {
		m := l.dut.Memory(64, regionAccess(l.dut.Rig, rig.RemoteAccess(l.dut.Rig))|verbs.AccessZeroBased)
		l.dut.Check(m.Addr() == 0, "a region at address 0", "%#x", m.Addr())
		at := func(addr uint64) verbs.Remote { return verbs.Remote{Addr: addr, RKey: m.RKey()} }
		l.partner.expectRead(at(0), m.Buf[:8])
		l.partner.expectRead(at(56), m.Buf[56:])
		l.expectRefused("read beyond a zero-based region", l.partner.readWR(9, 8, at(57)))
	}),
}, {
	ID: "verbs/pd/remote-key-of-another-domain", Cite: cite("ibv_alloc_pd(3)", "verbs/pd/3"),
	Title:   "A peer can access only memory in the protection domain of the queue pair",
	Sends:   "a WRITE of the partner to a region of another domain, with the correct key",
	Expects: "it fails, and memory is unchanged",
	Defects: []string{"IgnorePD"}, Run: onPair(setup{}, func(l *qpPair) {
		other := l.dut.MemoryIn(otherPD(l.dut.Rig), 64, regionAccess(l.dut.Rig, rig.RemoteAccess(l.dut.Rig)))
		l.expectRefused("write to memory of another domain", l.partner.writeWR(1, 0, 16, other.Remote(0)))
		l.dut.ExpectUntouched(other)
	}),
}, {
	ID: "verbs/mr/read-only-is-not-written", Cite: cite("ibv_reg_mr(3)", "verbs/mr/5"),
	Title:   "A receive into memory without local write fails, and the memory is unchanged",
	Sends:   "a message of the peer for a receive in such memory",
	Expects: "the receive is refused or completes with LOC_PROT_ERR or LOC_ACCESS_ERR, and memory is unchanged",
	Defects: []string{"LocalWriteUnchecked"}, Run: onPair(setup{}, func(l *qpPair) {
		m := l.dut.Memory(128, verbs.AccessRemoteRead)
		if n, err := l.dut.qp.PostRecv([]verbs.RecvWR{{WRID: 1, SGL: m.SGL(0, 128)}}); err != nil {
			l.dut.Check(n == 0, "no receive posted if it is refused", "%d", n)
			return
		}
		l.partner.PostSend(l.partner.qp, l.partner.sendWR(2, 0, 32))
		wc := l.dut.NextCompletion()
		l.dut.Check(wc.Status == verbs.WCLocProtErr || wc.Status == verbs.WCLocAccessErr,
			"a receive that fails without local write", "%s", rig.Describe(&wc))
		l.dut.ExpectUntouched(m)
	}),
}, {
	ID: "verbs/mr/closed-remote-key", Cite: cite("ibv_dereg_mr(3)", "verbs/mr/9"),
	Title:   "The R_Key of a deregistered region is invalid",
	Sends:   "a WRITE of the peer before the region is closed, and one afterwards",
	Expects: "the first is executed and the second fails, with memory unchanged",
	Defects: []string{"StaleKeys"}, Run: onPair(setup{}, func(l *qpPair) {
		m := l.dut.Memory(64, regionAccess(l.dut.Rig, rig.RemoteAccess(l.dut.Rig)))
		at := m.Remote(0)
		l.partner.PostSend(l.partner.qp, l.partner.writeWR(1, 0, 16, at), l.partner.readWR(2, 16, at))
		l.partner.ExpectCompletion(1, verbs.WCSuccess)
		l.partner.ExpectCompletion(2, verbs.WCSuccess) // the WRITE is in memory now, on any transport
		l.dut.ExpectBytes(m, 0, l.partner.mem.Buf[:16])
		l.dut.Must("a region that can be closed", m.Close())
		m.Snapshot()
		l.expectRefused("write to a closed region", l.partner.writeWR(3, 32, 16, at))
		l.dut.ExpectUntouched(m)
	}),
}, {
	ID: "verbs/flush/too-long-for-the-receive", Cite: cite("ibv_poll_cq(3)", "verbs/flush/4"),
	Title:   "A message that is too long for its receive completes it with an error, and writes nothing beyond it",
	Sends:   "a message of 65 bytes of the peer for a receive of 64",
	Expects: "LOC_LEN_ERR, and nothing after the receive changed",
	Defects: []string{"LengthErrorsHidden", "QueryStale"}, Run: onPair(setup{}, func(l *qpPair) {
		m := l.dut.Memory(128, verbs.AccessLocalWrite)
		l.dut.PostRecv(l.dut.qp, 1, m.SGE(0, 64+l.dut.grhLen()))
		l.partner.PostSend(l.partner.qp, l.partner.sendWR(2, 0, 65))
		l.dut.ExpectCompletion(1, verbs.WCLocLenErr)
		l.dut.ExpectUnchangedOutside(m, 0, 64+l.dut.grhLen())
		l.dut.AwaitState(l.dut.qp, errState)
	}),
}})

// rdmaWR returns a READ or WRITE, by op, of 8 bytes at a remote address, with ID 9. The local bytes
// are at recvOffset.
func (e *endpoint) rdmaWR(op verbs.WROpcode, at verbs.Remote) verbs.SendWR {
	wr := e.writeWR(9, recvOffset, 8, at)
	wr.Opcode = op
	return wr
}

// expectExecuted fails the case unless a READ or WRITE of the partner is executed on the eight
// bytes at off of m, whose remote address is at. It leaves m with its original content.
func (l *qpPair) expectExecuted(op verbs.WROpcode, m *rig.Memory, at verbs.Remote, off int) {
	const id = 76
	if op == verbs.OpRDMARead {
		l.partner.expectRead(at, m.Buf[off:][:8])
		return
	}
	was := [8]byte(m.Buf[off:])
	copy(m.Buf[off:], "changed!")
	l.dut.QueryPort() // a verb call copies the change to a device on another host
	copy(l.partner.mem.Buf[sendOffset:], was[:])
	l.partner.execute(l.partner.writeWR(id, sendOffset, 8, at))
	// A READ shows that the WRITE is in memory if the transport does not acknowledge it.
	l.partner.expectRead(l.dut.mem.Remote(0), l.dut.mem.Buf[:8])
	l.dut.ExpectBytes(m, off, was[:])
}
