package verbsapi

import (
	"fmt"
	"math"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// What peers can and cannot do with regions.
var regionPeerCases = overBoth([]conformance.Case{
	{
		ID:    "verbs/mr/peers-stay-within",
		Title: "A peer reaches every byte of a region by its key, and none before or behind it",
		Cite:  manual("Table 63", "verbs/mr/11"), Level: conformance.Must,
		Sends:   "READs and WRITEs of the peer: of the first and of the last eight bytes of a region, then of eight that begin a byte before it, or end a byte behind it",
		Expects: "the bytes for the former; that the latter fail, with memory as it was",
		Defects: []string{"RangeSlack"},
		Run: onSides(func(d *sides) {
			m := d.near.Memory(64, regionRights(d.near, remoteRights(d.near)))
			for _, op := range []verbs.WROpcode{verbs.OpRDMARead, verbs.OpRDMAWrite} {
				for _, off := range []int{-1, 57} {
					l := d.link(setup{})
					l.carriesOut(op, m, m.Remote(0), 0)
					l.carriesOut(op, m, m.Remote(56), 56)
					l.refuses(fmt.Sprintf("%v 8 bytes from %d on of 64", op, off), l.far.rdmaWR(op, 9, 8, m.Remote(off)))
				}
			}
			d.near.ExpectUnchanged(m, 0, 0)
		}),
	},
	{
		ID:    "verbs/mr/peers-do-not-wrap-around",
		Title: "An access of a peer whose address and length go beyond the last address fails",
		Cite:  manual("Table 63", "verbs/mr/11"), Level: conformance.Must,
		Sends:   "READs and WRITEs of the peer by the key of a region: of 8 bytes at 2^64-4 and at 2^64-8",
		Expects: "that they fail, with memory as it was",
		Defects: []string{"WrappingRange"},
		Run: onSides(func(d *sides) {
			m := d.near.Memory(64, regionRights(d.near, remoteRights(d.near)))
			for _, op := range []verbs.WROpcode{verbs.OpRDMARead, verbs.OpRDMAWrite} {
				for _, at := range []uint64{math.MaxUint64 - 3, math.MaxUint64 - 7} {
					l := d.link(setup{})
					l.refuses(fmt.Sprintf("%v 8 bytes at %#x", op, at), l.far.rdmaWR(op, 9, 8, verbs.Remote{Addr: at, RKey: m.RKey()}))
				}
			}
			d.near.ExpectUnchanged(m, 0, 0)
		}),
	},
	{
		ID:    "verbs/mr/peers-have-the-rights-given",
		Title: "A peer can read a region with the right to remote read only, and write one with the right to remote write only",
		Cite:  manual("ibv_reg_mr(3)", "verbs/mr/12"), Level: conformance.Must,
		Sends:   "READs and WRITEs of the peer: on memory that may be read, on memory that may be written, and on memory that may be neither",
		Expects: "those granted are carried out; the others fail, with memory as it was",
		Defects: []string{"RightsIgnored"},
		Run: onSides(func(d *sides) {
			ops := map[verbs.WROpcode]verbs.Access{verbs.OpRDMARead: verbs.AccessRemoteRead, verbs.OpRDMAWrite: verbs.AccessRemoteWrite}
			for _, has := range []verbs.Access{0, verbs.AccessRemoteRead, verbs.AccessRemoteWrite} {
				m := d.near.Memory(64, has|verbs.AccessLocalWrite)
				for _, op := range []verbs.WROpcode{verbs.OpRDMARead, verbs.OpRDMAWrite} {
					l := d.link(setup{})
					if has&ops[op] != 0 {
						l.carriesOut(op, m, m.Remote(0), 0)
						continue
					}
					l.refuses(fmt.Sprintf("%v memory with rights %#x", op, uint32(has)), l.far.rdmaWR(op, 9, 8, m.Remote(0)))
				}
				d.near.ExpectUnchanged(m, 0, 0)
			}
		}),
	},
	{
		ID:    "verbs/mr/overlapping-regions-rights",
		Title: "Of several regions over the same memory each has its own rights",
		Cite:  manual("ibv_reg_mr(3)", "verbs/mr/7"), Level: conformance.Must,
		Sends:   "WRITEs of the peer to the same bytes by the keys of three regions: one without rights between two that may be written",
		Expects: "the bytes by the first and the last; by the one between that it fails, with memory as it was",
		Defects: []string{"RightsIgnored"},
		Run: onSides(func(d *sides) {
			const local = verbs.AccessLocalWrite
			m := d.near.Memory(64, local|verbs.AccessRemoteWrite)
			places := []verbs.Remote{m.Remote(0)}
			for i, rights := range []verbs.Access{local, local | verbs.AccessRemoteWrite} {
				mr, err := d.near.PD.RegMR(verbs.MRInit{Buf: m.Buf, Access: rights})
				d.near.Must(fmt.Sprintf("region %d over the same memory", i+2), err)
				places = append(places, verbs.Remote{Addr: mr.Addr(), RKey: mr.RKey()})
			}
			for i, at := range places {
				l := d.link(setup{})
				if i == 1 {
					l.refuses("write memory by a key without rights", l.far.rdmaWR(verbs.OpRDMAWrite, 9, 8, at))
					d.near.ExpectUnchanged(m, 0, 0)
					continue
				}
				l.carriesOut(verbs.OpRDMAWrite, m, at, 0)
			}
		}),
	},
	{
		ID:    "verbs/mr/zero-based",
		Title: "The addresses of a zero-based region begin at 0",
		Cite:  manual("o10-36.2.2", "verbs/mr/13"), Level: conformance.Must, Needs: verbs.CapZeroBased,
		Sends:   "READs of the peer at 0 and at 56 of a zero-based region of 64 bytes, then at 57",
		Expects: "a region that says that it begins at 0; its first and its last bytes; that the last one fails",
		Defects: []string{"ZeroBasedIgnored"},
		Run: onReliable(func(l *link) {
			m := l.near.Memory(64, regionRights(l.near.Rig, remoteRights(l.near.Rig))|verbs.AccessZeroBased)
			l.near.Check(m.Addr() == 0, "a region at address 0", "%#x", m.Addr())
			at := func(addr uint64) verbs.Remote { return verbs.Remote{Addr: addr, RKey: m.RKey()} }
			l.far.reads(at(0), m.Buf[:8])
			l.far.reads(at(56), m.Buf[56:])
			l.refuses("read beyond a zero-based region", l.far.readWR(9, toOff, 8, at(57)))
		}),
	},
	{
		ID:    "verbs/pd/remote-key-of-another-domain",
		Title: "A peer reaches through a queue pair only memory of its domain",
		Cite:  manual("ibv_alloc_pd(3)", "verbs/pd/3"), Level: conformance.Must,
		Sends:   "a WRITE of the peer to a region of another domain, with its right key",
		Expects: "that it fails, and memory as it was",
		Defects: []string{"IgnorePD"},
		Run: onReliable(func(l *link) {
			other := l.near.MemoryIn(otherPD(l.near.Rig), 64, regionRights(l.near.Rig, remoteRights(l.near.Rig)))
			l.refuses("write to memory of another domain", l.far.writeWR(1, 0, 16, other.Remote(0)))
			l.near.ExpectUnchanged(other, 0, 0)
		}),
	},
	{
		ID:    "verbs/mr/read-only-is-not-written",
		Title: "A receive into memory without the right to local write fails, and leaves the memory alone",
		Cite:  manual("ibv_reg_mr(3)", "verbs/mr/5"), Level: conformance.Must,
		Sends:   "a message of the peer for a receive in such memory",
		Expects: "that the receive is refused or completes with LOC_PROT_ERR or LOC_ACCESS_ERR, and memory as it was",
		Defects: []string{"LocalWriteUnchecked"},
		Run: onReliable(func(l *link) {
			m := l.near.Memory(128, verbs.AccessRemoteRead)
			if n, err := l.near.qp.PostRecv([]verbs.RecvWR{{WRID: 1, SGL: m.SGL(0, 128)}}); err != nil {
				l.near.Check(n == 0, "no receive taken if it is refused", "%d", n)
				return
			}
			l.far.PostSend(l.far.qp, l.far.sendWR(2, 0, 32))
			wc := l.near.NextCompletion()
			l.near.Check(wc.Status == verbs.WCLocProtErr || wc.Status == verbs.WCLocAccessErr,
				"a receive that fails for want of the right to write", "%s", rig.Describe(&wc))
			l.near.ExpectUnchanged(m, 0, 0)
		}),
	},
	{
		ID:    "verbs/mr/closed-remote-key",
		Title: "The R_Key of a region is worth nothing when the region is closed",
		Cite:  manual("ibv_dereg_mr(3)", "verbs/mr/9"), Level: conformance.Must,
		Sends:   "a WRITE of the peer before the region is closed, and one afterwards",
		Expects: "that the first is executed and the second fails, with memory as it was",
		Defects: []string{"StaleKeys"},
		Run: onReliable(func(l *link) {
			m := l.near.Memory(64, regionRights(l.near.Rig, remoteRights(l.near.Rig)))
			at := m.Remote(0)
			l.far.PostSend(l.far.qp, l.far.writeWR(1, 0, 16, at), l.far.readWR(2, toOff, 16, at))
			l.far.ExpectCompletion(1, verbs.WCSuccess)
			l.far.ExpectCompletion(2, verbs.WCSuccess) // by now the write is in place, whatever the transport
			l.near.ExpectBytes(m, 0, l.far.mem.Buf[:16])
			l.near.Must("a region that can be closed", m.Close())
			m.Snapshot()
			l.refuses("write to a closed region", l.far.writeWR(3, 32, 16, at))
			l.near.ExpectUnchanged(m, 0, 0)
		}),
	},
	{
		ID:    "verbs/flush/too-long-for-the-receive",
		Title: "A message that does not fit its receive completes it in error, and writes nothing beyond it",
		Cite:  manual("ibv_poll_cq(3)", "verbs/flush/4"), Level: conformance.Must,
		Sends:   "a message of 65 bytes of the peer for a receive of 64",
		Expects: "LOC_LEN_ERR, and nothing behind the receive changed",
		Defects: []string{"LengthErrorsHidden", "QueryStale"},
		Run: onReliable(func(l *link) {
			m := l.near.Memory(128, verbs.AccessLocalWrite)
			l.near.PostRecv(l.near.qp, 1, m.SGE(0, 64+l.near.area()))
			l.far.PostSend(l.far.qp, l.far.sendWR(2, 0, 65))
			l.near.ExpectCompletion(1, verbs.WCLocLenErr)
			l.near.ExpectUnchanged(m, 0, 64+l.near.area())
			l.near.AwaitState(l.near.qp, failed)
		}),
	},
})

// rdmaWR is a request for n bytes of the peer's memory, to or from the end's own.
func (e *end) rdmaWR(op verbs.WROpcode, id uint64, n int, at verbs.Remote) verbs.SendWR {
	wr := e.writeWR(id, toOff, n, at)
	wr.Opcode = op
	return wr
}

// carriesOut ends the case unless a READ or a WRITE of the partner is carried out on eight
// bytes of the device's memory, which are at off of m. It leaves the memory's own pattern
// behind, so that what follows can be held against it.
func (l *link) carriesOut(op verbs.WROpcode, m *rig.Memory, at verbs.Remote, off int) {
	const id = 76
	if op == verbs.OpRDMARead {
		l.far.reads(at, m.Buf[off:][:8])
		return
	}
	was := [8]byte(m.Buf[off:])
	copy(m.Buf[off:], "changed!")
	portOf(l.near.Rig) // a verb, so that the device sees it before the partner writes
	copy(l.far.mem.Buf[fromOff:], was[:])
	l.far.PostSend(l.far.qp, l.far.writeWR(id, fromOff, 8, at))
	l.far.ExpectCompletion(id, verbs.WCSuccess)
	// Only an answer tells that the write is in place, on a transport that confirms none.
	l.far.reads(l.near.remote(0), l.near.mem.Buf[:8])
	l.near.ExpectBytes(m, off, was[:])
}
