package verbsapi

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// windowPeerCases test remote access through windows.
var windowPeerCases = alsoOverRD([]conformance.Case{
	windowRange("type-1", verbs.CapMWType1, verbs.MWType1),
	windowRange("type-2", verbs.CapMWType2, verbs.MWType2),
	{
		ID:   "verbs/mw/peers-have-the-rights-of-the-window",
		Cite: manual("ibv_bind_mw(3)", "verbs/mw/11"), Needs: verbs.CapMWType2,
		Run: onDevices(func(d *devices) {
			m := d.dut.Memory(256, regionAccess(d.dut, rig.RemoteAccess(d.dut)))
			for _, w := range []struct {
				access           verbs.Access
				granted, refused verbs.WROpcode
			}{
				{verbs.AccessRemoteRead, verbs.OpRDMARead, verbs.OpRDMAWrite},
				{verbs.AccessRemoteWrite, verbs.OpRDMAWrite, verbs.OpRDMARead},
			} {
				l := d.newPair(setup{})
				at := l.dut.bindNew(verbs.MWType2, bindRange(m, 64, 64, w.access))
				l.expectExecuted(w.granted, m, at, 64)
				l.expectRefused(fmt.Sprintf("%v through a window with rights %#x", w.refused, uint32(w.access)), l.partner.rdmaWR(w.refused, 9, 8, at))
			}
			d.dut.ExpectUnchanged(m, 0, 0)
		}),
	},
	{
		ID:   "verbs/mw/atomics-through-a-window",
		Cite: manual("ibv_bind_mw(3)", "verbs/mw/11"), Needs: verbs.CapMWType2 | verbs.CapAtomics,
		Run: onReliable(func(l *qpPair) {
			l.dut.setWord(41)
			word := func(access verbs.Access) verbs.Remote {
				return l.dut.bindNew(verbs.MWType2, bindRange(l.dut.mem, l.dut.mem.WordOffset(0), 64, access))
			}
			l.partner.expectAtomic(verbs.OpAtomicFetchAdd, word(verbs.AccessRemoteAtomic), verbs.Atomic{CompareAdd: 1}, 41)
			at := word(verbs.AccessRemoteRead | verbs.AccessRemoteWrite)
			l.expectRefused("do atomics through a window for reads and writes", l.partner.atomicWR(9, verbs.OpAtomicFetchAdd, at, verbs.Atomic{CompareAdd: 1}))
			l.dut.Check(l.dut.readWord() == 42, "the word unchanged, 42", "%d", l.dut.readWord())
		}),
	},
	{
		ID: "verbs/mw/type-2-on-its-own-queue-pair", Cite: manual("", "verbs/mw/12"), Needs: verbs.CapMWType2,
		Run: onDevices(func(d *devices) {
			own, other := d.newPair(setup{}), d.newPair(setup{})
			at := own.dut.bindReadable(own.dut.newWindow(verbs.MWType2), 256, 64)
			own.partner.expectRead(at, own.dut.mem.Buf[256:320])
			other.expectRefused("read through a window of another queue pair", other.partner.readWR(9, recvOffset, 16, at))
		}),
	},
	{
		ID:   "verbs/mw/zero-based",
		Cite: manual("o10-36.2.2", "verbs/mw/13"), Needs: verbs.CapMWType2 | verbs.CapZeroBased,
		Run: onReliable(func(l *qpPair) {
			at := l.dut.bindNew(verbs.MWType2, bindRange(l.dut.mem, 256, 64, verbs.AccessRemoteRead|verbs.AccessZeroBased))
			zero, last := verbs.Remote{RKey: at.RKey}, verbs.Remote{Addr: 56, RKey: at.RKey}
			l.partner.expectRead(zero, l.dut.mem.Buf[256:264])
			l.partner.expectRead(last, l.dut.mem.Buf[312:320])
			l.expectRefused("read a zero-based window at the region's address", l.partner.readWR(9, recvOffset, 8, at))
		}),
	},
	{
		ID: "verbs/mw/empty-bind-closes-type-1", Cite: manual("o10-37.2.40", "verbs/mw/15"), Needs: verbs.CapMWType1,
		Run: onDevices(func(d *devices) {
			l, again := d.newPair(setup{}), d.newPair(setup{})
			mw := l.dut.newWindow(verbs.MWType1)
			old := l.dut.bindReadable(mw, 256, 64)
			l.partner.expectRead(old, l.dut.mem.Buf[256:264])
			closed := l.dut.bindReadable(mw, 256, 0)
			l.expectRefused("read by the old key of a window that was closed", l.partner.readWR(9, recvOffset, 8, old))
			again.expectRefused("read by the new key of a window that was closed", again.partner.readWR(9, recvOffset, 8, closed))
		}),
	},
	{
		ID: "verbs/mw/free-while-bound", Cite: manual("ibv_dealloc_mw(3)", "verbs/mw/7"), Needs: verbs.CapMWType2,
		Run: onReliable(func(l *qpPair) {
			mw := l.dut.newWindow(verbs.MWType2)
			at := l.dut.bindReadable(mw, 256, 64)
			l.partner.expectRead(at, l.dut.mem.Buf[256:320])
			l.dut.Must("a bound window that can be freed", mw.Close())
			l.expectRefused("read through a window that has been freed", l.partner.readWR(9, recvOffset, 16, at))
		}),
	},
	{
		ID:   "verbs/mw/local-invalidate",
		Cite: manual("ibv_post_send(3)", "verbs/mw/8"), Needs: verbs.CapMWType2 | verbs.CapLocalInv,
		Run: onReliable(func(l *qpPair) {
			mw := l.dut.newWindow(verbs.MWType2)
			old := l.dut.bindReadable(mw, 256, 64)
			wc := l.dut.complete(verbs.SendWR{WRID: 5, Opcode: verbs.OpLocalInv, Flags: verbs.SendSignaled, InvalidateRKey: old.RKey})
			l.dut.Check(wc.Opcode == verbs.WCOpLocalInv, verbs.WCOpLocalInv.String(), "%v", wc.Opcode)
			fresh := l.dut.bindReadable(mw, 512, 64)
			l.partner.expectRead(fresh, l.dut.mem.Buf[512:576])
			l.expectRefused("read by a key that was invalidated", l.partner.readWR(9, recvOffset, 16, old))
		}),
	},
})

// windowRange returns the case about the range of windows of a type.
func windowRange(name string, needs verbs.Caps, kind verbs.MWType) conformance.Case {
	return conformance.Case{
		ID:    "verbs/mw/peers-stay-within-" + name,
		Title: "Through a " + withSpaces(name) + " window a peer can access its range, and no other bytes of its region",
		Cite:  manual("ibv_bind_mw(3)", "verbs/mw/10"), Needs: needs, Defects: []string{"WindowBounds"},
		Sends:   "READs and WRITEs of the peer through a window of 64 bytes inside a region: of its last eight, then of eight that begin a byte before it, or end a byte after it",
		Expects: "the former are executed; the latter fail, with memory unchanged",
		Run: onDevices(func(d *devices) {
			m := d.dut.Memory(256, regionAccess(d.dut, rig.RemoteAccess(d.dut)))
			for _, op := range []verbs.WROpcode{verbs.OpRDMARead, verbs.OpRDMAWrite} {
				for _, off := range []uint64{63, 64 + 57} {
					l := d.newPair(setup{})
					at := l.dut.bindNew(kind, bindRange(m, 64, 64, verbs.AccessRemoteRead|verbs.AccessRemoteWrite))
					at.Addr = m.Addr() + 64 + 56
					l.expectExecuted(op, m, at, 64+56)
					at.Addr = m.Addr() + off
					l.expectRefused(fmt.Sprintf("%v 8 bytes from %d on through a window of bytes 64 to 127", op, off), l.partner.rdmaWR(op, 9, 8, at))
				}
			}
			d.dut.ExpectUnchanged(m, 0, 0)
		}),
	}
}
