package roce

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var bindCases = overRC.Cases(slices.Concat([]conformance.Case{{
	ID: "mw/bind/type-2-opens-its-range", Cite: ibta("o10-37.2.30", "mw/8", "mw/5"), Needs: verbs.CapMWType2,
	Title:   "A bound type 2 window grants its access rights on its range",
	Sends:   "binds a window to 256 bytes inside a region; a READ and a WRITE of all of them by its key",
	Expects: "SUCCESS for the bind, the bytes for the READ, an ACK for the WRITE and its bytes in place",
	Defects: []string{"MW2Refused"}, Run: onConn(Setup{}, func(c *Conn) {
		win := c.bindWindow(verbs.MWType2, 1024, 256, verbs.AccessRemoteRead|verbs.AccessRemoteWrite)
		c.expectRead(0, win.reth(0, 256), win.m.Buf[1024:1280])
		c.expectOpExecuted(1, writeOp, win.reth(0, 256))
		c.ExpectBytes(win.m, 1024, Data(256))
		c.ExpectUnchangedOutside(win.m, 1024, 256)
	}),
}}, []conformance.Case{
	badBindCase("mw/bind/beyond-the-region-refused", "A bind beyond the start or end of the region fails", ibta("C10-75", "mw/1"), outOfRangeBinds),
	badBindCase("mw/bind/region-without-mw-bind-refused", "A bind to a region without MW_BIND fails", ibta("C10-73", "mw/2"), noMWBindBinds),
	badBindCase("mw/bind/write-window-needs-local-write", "A window with remote write or atomic cannot be bound to a region without local write", ibta("C10-74", "mw/3"), readOnlyBinds),
	badBindCase("mw/bind/other-domain-refused", "A bind fails unless QP, window and region are in the same protection domain", ibta("C10-72", "mw/4"), otherPDBinds, "BindForeignRegion"),
}, []conformance.Case{{
	ID:   "mw/bind/type-1-refused-likewise",
	Cite: ibta("C10-72..75", "mw/1", "mw/2", "mw/3", "mw/4"), Needs: verbs.CapMWType1,
	Title:   "Binds that fail for type 2 windows fail for type 1 windows, which then grant what they granted before",
	Sends:   "binds type 1 windows beyond a region, without the required rights, and across PDs; then READs with their keys; the same with windows that are bound, then READs and WRITEs",
	Expects: "an error at the bind or MW_BIND_ERR; a NAK for a remote access error for the READs; through bound windows the bytes for a READ of their range, a NAK for a WRITE without the right",
	Defects: []string{"BindUnchecked", "FailedBindChangesKey"}, Run: OnPort(func(p *Port) {
		for _, binds := range [][]badBind{outOfRangeBinds, noMWBindBinds, readOnlyBinds, otherPDBinds} {
			eachConn(p, Setup{}, binds, func(c *Conn, b badBind) {
				mw, info := b.bind(c, verbs.MWType1)
				c.expectBindFails(mw, verbs.SendSignaled, info)
				c.secondConn(Setup{}).expectOpRefused(readOp, ib.At(info.Addr, mw.RKey(), 8))
			})
		}
		eachConn(p, Setup{}, slices.Concat(outOfRangeBinds, noMWBindBinds, readOnlyBinds), func(c *Conn, b badBind) {
			win := c.bindWindow(verbs.MWType1, 1024, 256, verbs.AccessRemoteRead)
			_, info := b.bind(c, verbs.MWType1)
			c.expectBindFails(win.mw, verbs.SendSignaled, info)
			other := c.secondConn(Setup{})
			other.expectRead(0, win.reth(0, 256), win.m.Buf[1024:1280])
			other.expectNoEffect(win.m, writeOp.packet(other.PeerPSN(1), win.reth(0, 8)), ib.NakRemoteAccess)
		})
	}),
}, {
	ID: "mw/bind/bound-type-2-window-refused", Cite: ibta("o10-37.2.30", "mw/8"), Needs: verbs.CapMWType2,
	Title:   "A bind of a type 2 window that is already bound completes with MW_BIND_ERR",
	Sends:   "binds a window to one range of a region, then to another: on another queue pair, with a READ by the key on the first, and on the first",
	Expects: "SUCCESS, then MW_BIND_ERR; the bytes for the READ",
	Defects: []string{"RebindBound"}, Run: onConn(Setup{}, func(c *Conn) {
		win := c.bindWindow(verbs.MWType2, 0, 256, verbs.AccessRemoteRead)
		// The post must succeed: an earlier request in the queue might have invalidated the window.
		for _, on := range []*Conn{c.secondConn(Setup{}), c} {
			c.expectRead(0, win.reth(0, 256), win.m.Buf[:256])
			_, err := on.postBind(win.mw, verbs.SendSignaled, bindRange(win.m, 1024, 256, verbs.AccessRemoteRead))
			c.Must("a bind that can be posted", err)
			c.ExpectCompletion(bindID, verbs.WCMWBindErr)
		}
	}),
}, {
	ID:   "mw/bind/invalidated-type-2-window-bound-again",
	Cite: ibta("o10-37.2.30", "mw/8", "rc/inv/1"), Needs: verbs.CapMWType2 | verbs.CapSendInv,
	Title:   "An invalidated type 2 window can be bound again, and its old key is invalid",
	Sends:   "binds a window, invalidates it by a SEND, binds it with another key; if the device can, the same with a local invalidate; READs by the new keys and the first",
	Expects: "SUCCESS for all binds; the bytes for the new keys, a NAK for a remote access error for the first",
	Defects: []string{"InvalidateLate", "OldWindowKeyWorks"}, Run: onConn(Setup{Receives: 1}, func(c *Conn) {
		old := c.bindWindow(verbs.MWType2, 1024, 256, verbs.AccessRemoteRead)
		c.Send(ib.SendOnlyInv(c.PeerPSN(0), old.key, nil))
		c.ExpectRecv(1, 0)
		again := c.bind(old.mw, bindRange(old.m, 1024, 256, verbs.AccessRemoteRead))
		c.expectRead(1, again.reth(0, 8), old.m.Buf[1024:1032])
		if c.Caps.Has(verbs.CapLocalInv) {
			c.invalidate(again)
			third := c.bind(old.mw, bindRange(old.m, 512, 1024, verbs.AccessRemoteRead)) // includes the old range
			c.expectRead(2, third.reth(0, 8), old.m.Buf[512:520])
			c.Attr.RQPSN++
		}
		c.expectReadRefused(2, old.reth(0, 8))
	}),
}, {
	ID:   "mw/bind/not-repeated-by-a-retransmission",
	Cite: ibta("", "mw/20"), Needs: verbs.CapMWType2 | verbs.CapSendInv,
	Title:   "A retransmission of requests does not execute the bind between them again",
	Sends:   "to a SEND, a bind and a WRITE: a READ through the window, a SEND that invalidates it, a NAK for the PSN of the SEND, and ACKs",
	Expects: "the bytes of the window; SEND and WRITE again, a completion with success of each request, and a NAK for a remote access error for the window's key",
	Defects: []string{"BindRepeated"}, Run: onConn(Setup{Receives: 1}, func(c *Conn) {
		m := c.bindableMemory()
		mw, info := c.newWindow(verbs.MWType2), bindRange(m, 1024, 256, verbs.AccessRemoteRead)
		win := boundWindow{mw: mw, m: m, addr: info.Addr, key: verbs.NextRKey(mw.RKey())}
		bind := verbs.SendWR{WRID: bindID, Opcode: verbs.OpBindMW, Flags: verbs.SendSignaled, Bind: verbs.Bind{MW: mw, RKey: win.key, Info: info}}
		c.PostSend(c.QP, c.SendWR(1, 8), bind, c.WriteWR(2, 8))
		requests := slices.Concat(c.wantSend(0, 8), c.wantWrite(1, 8))
		for _, want := range requests {
			c.expect(want)
		}
		c.expectRead(0, win.reth(0, 8), m.Buf[1024:1032])
		c.exchange(ib.SendOnlyInv(c.PeerPSN(1), win.key, nil).AckReq(), c.deviceAck(1, 2))
		c.exchange(c.peerNak(0, ib.NakSequence, 0), requests...)
		c.Send(c.peerAck(1, 2))
		c.ExpectRecv(1, 0)
		c.ExpectCompletions(verbs.WCSuccess, 1, bindID, 2)
		c.expectReadRefused(2, win.reth(0, 8))
	}),
}, {
	ID: "mw/bind/empty-type-2-window-refused", Cite: ibta("o10-37.2.40", "mw/9"), Needs: verbs.CapMWType2,
	Title:   "A bind of a type 2 window to no bytes fails",
	Sends:   "binds a type 2 window to 0 bytes of a region",
	Expects: "an error at the post, or MW_BIND_ERR",
	Defects: []string{"BindDefects"}, Run: onConn(Setup{}, func(c *Conn) {
		c.expectBindFails(c.newWindow(verbs.MWType2), verbs.SendSignaled, bindRange(c.bindableMemory(), 0, 0, verbs.AccessRemoteRead))
	}),
}, {
	ID: "mw/bind/empty-bind-closes-a-type-1-window", Cite: ibta("o10-37.2.40", "mw/9"), Needs: verbs.CapMWType1,
	Title:   "A bind of a type 1 window, also to no bytes, invalidates its old key",
	Sends:   "binds a type 1 window to the same 256 bytes twice and READs by its keys; binds it to none; READs by the last two keys",
	Expects: "the bytes for a READ by the key of the last bind, unless that was to no bytes; a NAK for a remote access error for the others",
	Defects: []string{"BindDefects", "OldWindowKeyWorks"}, Run: onConn(Setup{}, func(c *Conn) {
		first := c.bindWindow(verbs.MWType1, 1024, 256, verbs.AccessRemoteRead)
		c.expectRead(0, first.reth(0, 8), first.m.Buf[1024:1032])
		second := c.bind(first.mw, bindRange(first.m, 1024, 256, verbs.AccessRemoteRead))
		c.expectRead(1, second.reth(0, 8), first.m.Buf[1024:1032])
		c.expectKeysRefused(first.addr, first.key)
		empty := c.bind(first.mw, bindRange(first.m, 1024, 0, verbs.AccessRemoteRead))
		c.expectReadRefused(2, second.reth(0, 8))
		c.expectKeysRefused(first.addr, empty.key)
	}),
}, {
	ID:   "mw/bind/zero-based-type-1-window-refused",
	Cite: ibta("o10-36.2.2", "mw/10"), Needs: verbs.CapMWType1 | verbs.CapZeroBased,
	Title:   "A type 1 window cannot be zero-based",
	Sends:   "binds a type 1 window with the flag for addresses from zero on, and READs byte 0 by its key",
	Expects: "an error at the bind or MW_BIND_ERR; a NAK for a remote access error",
	Defects: []string{"BindDefects"}, Run: onConn(Setup{}, func(c *Conn) {
		mw := c.newWindow(verbs.MWType1)
		c.expectBindFails(mw, verbs.SendSignaled, bindRange(c.bindableMemory(), 1024, 256, verbs.AccessRemoteRead|verbs.AccessZeroBased))
		c.secondConn(Setup{}).expectOpRefused(readOp, ib.At(0, mw.RKey(), 8))
	}),
}, {
	ID: "mw/bind/unsignaled-failure-completes", Cite: ibta("", "mw/13", "err/1"), Needs: verbs.CapMWType2,
	Title:   "An unsignaled bind that fails completes with an error",
	Sends:   "an unsignaled bind that exceeds its region, of a window of each type that the device has",
	Expects: "MW_BIND_ERR, unless the post is refused",
	Defects: []string{"UnsignaledBindSilent"}, Run: onEachWindowType(func(c *Conn, kind verbs.MWType) {
		c.expectBindFails(c.newWindow(kind), 0, bindRange(c.bindableMemory(), 1, 4096, verbs.AccessRemoteRead))
	}),
}}))

// onEachWindowType makes the body of a case that calls steps for each type of window that the
// device has, each time with a new connection.
func onEachWindowType(steps func(*Conn, verbs.MWType)) func(*conformance.Bench) error {
	return OnPort(func(p *Port) {
		kinds := []verbs.MWType{verbs.MWType1, verbs.MWType2}
		if !p.Caps.Has(verbs.CapMWType1) {
			kinds = kinds[1:]
		}
		eachConn(p, Setup{}, kinds, steps)
	})
}

// badBindCase returns a case of binds of a type 2 window that must fail.
func badBindCase(id, title string, cite conformance.Cite, binds []badBind, extraDefects ...string) conformance.Case {
	names := make([]string, len(binds))
	for i, b := range binds {
		names[i] = b.name
	}
	return conformance.Case{
		ID:    id,
		Title: title,
		Cite:  cite, Needs: verbs.CapMWType2, Defects: append([]string{"BindUnchecked"}, extraDefects...),
		Sends:   "binds a type 2 window to " + strings.Join(names, "; to ") + "; then READs with the keys of the window and of the bind",
		Expects: "an error at the post, or MW_BIND_ERR; a NAK for a remote access error for the READs",
		Run: onEachConn(Setup{}, binds, func(c *Conn, b badBind) {
			mw, info := b.bind(c, verbs.MWType2)
			before, bound := mw.RKey(), verbs.NextRKey(mw.RKey()) // bound: the key that the bind would set
			c.expectBindFails(mw, verbs.SendSignaled, info)
			c.expectKeysRefused(info.Addr, before, bound)
			if c.QueryQP(c.QP).State == verbs.QPStateRTS { // the post was refused
				c.expectReadRefused(0, ib.At(info.Addr, bound, 8))
			}
		}),
	}
}

// badBind is a bind that must fail.
type badBind struct {
	name string
	bind func(*Conn, verbs.MWType) (verbs.MW, verbs.BindInfo)
}

func (b badBind) String() string { return b.name }

// badBindTo returns a bind of a new window of the QP's PD that must fail because of its BindInfo.
func badBindTo(name string, info func(*Conn) verbs.BindInfo) badBind {
	return badBind{name, func(c *Conn, kind verbs.MWType) (verbs.MW, verbs.BindInfo) { return c.newWindow(kind), info(c) }}
}

var (
	outOfRangeBinds = []badBind{
		badBindTo("a range that starts one byte before the region", func(c *Conn) verbs.BindInfo {
			return bindRange(c.bindableMemory(), -1, 64, verbs.AccessRemoteRead)
		}),
		badBindTo("a range that ends one byte after the region", func(c *Conn) verbs.BindInfo {
			return bindRange(c.bindableMemory(), 1, 4096, verbs.AccessRemoteRead)
		}),
		badBindTo("a range that wraps around 2^64", func(c *Conn) verbs.BindInfo {
			info := bindRange(c.bindableMemory(), 0, 64, verbs.AccessRemoteRead)
			info.Length = -info.Addr + 64
			return info
		}),
	}
	noMWBindBinds = []badBind{
		badBindTo("a region that grants everything but MW_BIND", func(c *Conn) verbs.BindInfo {
			return bindRange(c.TargetMem, 0, 64, verbs.AccessRemoteRead)
		}),
	}
	readOnlyBinds = []badBind{
		badBindTo("a region without local write, with remote write", func(c *Conn) verbs.BindInfo {
			return bindRange(c.Memory(64, verbs.AccessRemoteRead|verbs.AccessMWBind), 0, 64, verbs.AccessRemoteRead|verbs.AccessRemoteWrite)
		}),
		badBindTo("a region without local write, with remote atomic", func(c *Conn) verbs.BindInfo {
			return bindRange(c.Memory(64, verbs.AccessRemoteRead|verbs.AccessMWBind), 0, 64, verbs.AccessRemoteRead|verbs.AccessRemoteAtomic)
		}),
	}
	otherPDBinds = []badBind{
		badBindTo("a region of another PD", func(c *Conn) verbs.BindInfo {
			return bindRange(c.otherPDMemory(allAccess|verbs.AccessMWBind), 0, 64, verbs.AccessRemoteRead)
		}),
		{"a region of the QP's PD, with a window of another PD", func(c *Conn, kind verbs.MWType) (verbs.MW, verbs.BindInfo) {
			mw, err := c.otherPD().AllocMW(kind)
			c.Must("a memory window", err)
			return mw, bindRange(c.bindableMemory(), 0, 64, verbs.AccessRemoteRead)
		}},
		{"a region of the window's PD, which is not the QP's", func(c *Conn, kind verbs.MWType) (verbs.MW, verbs.BindInfo) {
			pd := c.otherPD()
			mw, err := pd.AllocMW(kind)
			c.Must("a memory window", err)
			return mw, bindRange(c.MemoryIn(pd, 64, allAccess|verbs.AccessMWBind), 0, 64, verbs.AccessRemoteRead)
		}},
	}
)

var windowCases = overRC.Cases([]conformance.Case{{
	ID: "mw/access/range-of-the-window-only", Cite: ibta("", "mw/5"), Needs: verbs.CapMWType2,
	Title:   "A type 2 window grants access to its range and no other bytes of its region",
	Sends:   "READs and WRITEs by the key of a window of 256 bytes: of its last eight, then of bytes 252 to 259, or -4 to 3",
	Expects: "the first is executed; to the second a NAK for a remote access error",
	Defects: []string{"WindowBounds"}, Run: OnPort(windowRange(verbs.MWType2)),
}, {
	ID: "mw/access/range-of-a-type-1-window-only", Cite: ibta("", "mw/5"), Needs: verbs.CapMWType1,
	Title:   "A type 1 window grants access to its range and no other bytes of its region",
	Sends:   "READs and WRITEs by the key of a window of 256 bytes: of its last eight, then of bytes 252 to 259, or -4 to 3",
	Expects: "the first is executed; to the second a NAK for a remote access error",
	Defects: []string{"WindowBounds"}, Run: OnPort(windowRange(verbs.MWType1)),
}, {
	ID: "mw/access/rights-of-the-window-only", Cite: ibta("C10-77", "mw/6"), Needs: verbs.CapMWType2,
	Title:   "An access through a window has the rights of the window, whatever the region grants",
	Sends:   "a READ and then a WRITE through a window that may be read; a WRITE and then a READ through one that may be written; likewise with atomics",
	Expects: "the first is executed; to the second a NAK for a remote access error, and memory unchanged",
	Defects: []string{"WindowRights"}, Run: OnPort(windowRights(verbs.MWType2)),
}, {
	ID: "mw/access/rights-of-a-type-1-window-only", Cite: ibta("C10-77", "mw/6"), Needs: verbs.CapMWType1,
	Title:   "An access through a type 1 window has the rights of the window, whatever the region grants",
	Sends:   "a READ and then a WRITE through a window that may be read; a WRITE and then a READ through one that may be written; likewise with atomics",
	Expects: "the first is executed; to the second a NAK for a remote access error, and memory unchanged",
	Defects: []string{"WindowRights"}, Run: OnPort(windowRights(verbs.MWType1)),
}, {
	ID: "mw/access/atomics-through-a-window", Cite: ibta("C10-77", "mw/6"), Needs: verbs.CapMWType2 | verbs.CapAtomics,
	Title:   "An atomic through a window is executed if the window grants it, and refused if not",
	Sends:   "a FETCH_ADD through a window with remote atomic, and one through a window with everything else",
	Expects: "the first is executed; to the second a NAK for a remote access error",
	Defects: []string{"NoWindowAtomics"}, Run: onConn(Setup{}, func(c *Conn) {
		m := c.bindableMemory()
		at := m.WordOffset(128)
		setWord(m, 128, 41)
		win := c.bind(c.newWindow(verbs.MWType2), bindRange(m, at, 64, verbs.AccessRemoteAtomic))
		c.exchange(ib.FetchAdd(c.PeerPSN(0), win.reth(0, 8), 1), ib.AtomicAck(c.PeerPSN(0), ib.AnyMSN, 41))
		c.expectWord(m, 128, 42)
		win = c.bind(c.newWindow(verbs.MWType2), bindRange(m, at, 64, verbs.AccessRemoteRead|verbs.AccessRemoteWrite))
		c.expectRefused(ib.FetchAdd(c.PeerPSN(1), win.reth(0, 8), 1), ib.NakRemoteAccess)
		c.expectWord(m, 128, 42)
	}),
}, {
	ID: "mw/access/type-2-on-its-own-qp-only", Cite: ibta("o10-37.2.43", "mw/7"), Needs: verbs.CapMWType2,
	Title:   "A type 2 window grants access only to requests on the QP that bound it",
	Sends:   "a READ, a WRITE and atomics through a window on its own QP, and the same on another QP of the same domain",
	Expects: "the first are executed; a NAK for a remote access error for the others, and memory unchanged",
	Defects: []string{"WindowOwner"}, Run: OnPort(func(p *Port) {
		ops, access := []remoteOp{readOp, writeOp}, verbs.AccessRemoteRead|verbs.AccessRemoteWrite
		if p.Caps.Has(verbs.CapAtomics) {
			ops, access = append(ops, addOp, swapOp), access|verbs.AccessRemoteAtomic
		}
		eachConn(p, Setup{}, ops, func(c *Conn, op remoteOp) {
			win := c.bindWindow(verbs.MWType2, 1024, 256, access)
			c.expectOpExecuted(0, op, win.word())
			setWord(win.m, windowWord, 0) // swapOp compares with 0, and would change the word
			other := c.secondConn(Setup{})
			other.expectNoEffect(win.m, op.packet(other.PeerPSN(0), win.word()), ib.NakRemoteAccess)
		})
	}),
}, {
	ID:   "mw/access/zero-based-window-begins-at-zero",
	Cite: ibta("o10-36.2.2", "mw/10"), Needs: verbs.CapMWType2 | verbs.CapZeroBased,
	Title:   "The addresses in a zero-based window begin at 0",
	Sends:   "READs through a zero-based window of 256 bytes: at 0, at 248, then at the address in the region",
	Expects: "the first and the last bytes of the window, then a NAK for a remote access error",
	Defects: []string{"ZeroBasedIgnored"}, Run: onConn(Setup{}, func(c *Conn) {
		win := c.bindWindow(verbs.MWType2, 1024, 256, verbs.AccessRemoteRead|verbs.AccessZeroBased)
		c.expectRead(0, ib.At(0, win.key, 8), win.m.Buf[1024:1032])
		c.expectRead(1, ib.At(248, win.key, 8), win.m.Buf[1272:1280])
		c.expectReadRefused(2, win.reth(0, 8))
	}),
}, {
	ID:   "mw/access/zero-based-region-begins-at-zero",
	Cite: ibta("o10-36.2.2", "mw/10", "acc/2"), Needs: verbs.CapZeroBased,
	Title:   "The addresses in a zero-based region begin at 0",
	Sends:   "READs of a zero-based region of 64 bytes at 0, at 56 and at 57",
	Expects: "its first and last eight bytes, then a NAK for a remote access error",
	Defects: []string{"ZeroBasedIgnored"}, Run: onConn(Setup{}, func(c *Conn) {
		m := c.Memory(64, allAccess|verbs.AccessZeroBased)
		c.expectRead(0, ib.At(0, m.RKey(), 8), m.Buf[:8])
		c.expectRead(1, ib.At(56, m.RKey(), 8), m.Buf[56:])
		c.expectReadRefused(2, ib.At(57, m.RKey(), 8))
	}),
}, {
	ID: "mw/life/region-with-windows-is-not-left-open", Cite: ibta("10.6.7.2.6", "mw/11"), Needs: verbs.CapMWType2,
	Title:   "Deregistering a region with bound windows is refused, or revokes their keys",
	Sends:   "binds a window of each type that the device has, deregisters its region, then READs by the key of the window",
	Expects: "an error and a window that works, or success and a NAK for a remote access error",
	Defects: []string{"DeregBound"}, Run: onEachWindowType(func(c *Conn, kind verbs.MWType) {
		win := c.bindWindow(kind, 1024, 256, verbs.AccessRemoteRead)
		if err := win.m.Close(); err != nil {
			c.expectRead(0, win.reth(0, 8), win.m.Buf[1024:1032])
			return
		}
		c.expectOpRefused(readOp, win.reth(0, 8))
	}),
}, {
	ID: "mw/life/qp-with-windows-can-be-destroyed", Cite: ibta("o10-2.2.5", "mw/12"), Needs: verbs.CapMWType2,
	// A known device waits for the window for most of a minute, gives up, and later
	// dereferences the destroyed QP.
	Labels:  []string{conformance.Dangerous},
	Title:   "A QP with bound type 2 windows can be destroyed, which revokes their keys",
	Sends:   "binds two windows, one of them for the second time if the device can invalidate locally, destroys the QP, then READs by the keys of the windows on another QP",
	Expects: "the QP can be destroyed, at once; a NAK for a remote access error; the regions can be deregistered, and the windows freed",
	Defects: []string{"BoundQPBusy", "DestroyUnbindsOne", "DestroyKeepsRebound", "NumberInheritsWindows"}, Run: onConn(Setup{}, func(c *Conn) {
		windows := []boundWindow{
			c.bindWindow(verbs.MWType2, 1024, 256, verbs.AccessRemoteRead), c.bindWindow(verbs.MWType2, 1024, 256, verbs.AccessRemoteRead),
		}
		if c.Caps.Has(verbs.CapLocalInv) {
			win := &windows[0]
			c.invalidate(*win)
			win.key = c.bind(win.mw, bindRange(win.m, 1024, 256, verbs.AccessRemoteRead)).key
		}
		began := c.Now()
		c.Must("a QP with a bound window that can be destroyed", c.QP.Close())
		took := c.Now() - began
		c.Check(took < c.ResponseTimeout(), fmt.Sprintf("a QP with a bound window that is destroyed within %v", c.ResponseTimeout()), "after %v", took)
		for _, win := range windows {
			c.secondConn(Setup{}).expectOpRefused(readOp, win.reth(0, 8))
			c.Must("a region without windows that can be deregistered", win.m.Close())
			c.Must("a window that can be freed", win.mw.Close())
		}
	}),
}, {
	ID:   "mw/life/local-invalidate-waits-for-earlier-requests",
	Cite: ibta("10.6.5.1", "mw/14"), Needs: verbs.CapMWType2 | verbs.CapLocalInv,
	Title:   "A local invalidate takes effect after all earlier requests of its QP, and not before",
	Sends:   "posts a READ, an atomic, a WRITE or a SEND, which is not answered yet, and a local invalidate of a window; a READ through the window; the answer; another READ through the window",
	Expects: "the bytes of the window; completions of request and invalidate; a NAK for a remote access error",
	Defects: []string{"LocalInvEarly"}, Run: OnPort(func(p *Port) {
		requests := []func(*Conn) (verbs.SendWR, ib.Packet){
			func(c *Conn) (verbs.SendWR, ib.Packet) {
				return c.ReadWR(1, 8), ib.ReadResponseOnly(c.DevicePSN(0), 1, Data(8))
			},
			func(c *Conn) (verbs.SendWR, ib.Packet) { return c.WriteWR(1, 8), c.peerAck(0, 1) },
			func(c *Conn) (verbs.SendWR, ib.Packet) { return c.SendWR(1, 8), c.peerAck(0, 1) },
			func(c *Conn) (verbs.SendWR, ib.Packet) { return c.fetchAddWR(1), ib.AtomicAck(c.DevicePSN(0), 1, 5) },
		}
		if !p.Caps.Has(verbs.CapAtomics) {
			requests = requests[:3]
		}
		eachConn(p, Setup{}, requests, func(c *Conn, request func(*Conn) (verbs.SendWR, ib.Packet)) {
			win := c.bindWindow(verbs.MWType2, 1024, 256, verbs.AccessRemoteRead)
			wr, answer := request(c)
			c.request(0, wr)
			c.PostSend(c.QP, verbs.SendWR{WRID: 2, Opcode: verbs.OpLocalInv, Flags: verbs.SendSignaled, InvalidateRKey: win.key})
			c.expectRead(0, win.reth(0, 8), win.m.Buf[1024:1032])
			c.ExpectNoCompletion()
			c.completeWith(answer, 1, 2)
			c.expectReadRefused(1, win.reth(0, 8))
		})
	}),
}})

// windowAccess are rights of a window, an operation that they grant, and one that they do not.
type windowAccess struct {
	access           verbs.Access
	granted, refused remoteOp
}

func (w windowAccess) String() string {
	return fmt.Sprintf("a window with %v: %v is granted, %v refused", w.access, w.granted, w.refused)
}

// windowRange returns a function that fails the case unless the peer can read and write the last
// bytes of a window, and is refused access to bytes that begin before the window or end after it.
func windowRange(kind verbs.MWType) func(*Port) {
	const windowLen, accessLen = 256, 8
	return func(p *Port) {
		for _, outside := range []int{windowLen - accessLen/2, -accessLen / 2} {
			eachConn(p, Setup{}, []remoteOp{readOp, writeOp}, func(c *Conn, op remoteOp) {
				win := c.bindWindow(kind, 1024, windowLen, verbs.AccessRemoteRead|verbs.AccessRemoteWrite)
				c.expectOpExecuted(0, op, win.reth(windowLen-accessLen, accessLen))
				c.expectNoEffect(win.m, op.packet(c.PeerPSN(1), win.reth(outside, accessLen)), ib.NakRemoteAccess)
			})
		}
	}
}

// windowRights returns a function that fails the case unless a window permits an operation for
// which it grants the right, and refuses one for which it does not.
func windowRights(kind verbs.MWType) func(*Port) {
	return func(p *Port) {
		all := []windowAccess{{verbs.AccessRemoteRead, readOp, writeOp}, {verbs.AccessRemoteWrite, writeOp, readOp}}
		if p.Caps.Has(verbs.CapAtomics) {
			const readWrite = verbs.AccessRemoteRead | verbs.AccessRemoteWrite
			all = append(all, windowAccess{verbs.AccessRemoteAtomic, addOp, readOp}, windowAccess{verbs.AccessRemoteAtomic, swapOp, writeOp},
				windowAccess{readWrite, readOp, addOp}, windowAccess{readWrite, readOp, swapOp})
		}
		eachConn(p, Setup{}, all, func(c *Conn, w windowAccess) {
			win := c.bindWindow(kind, 1024, 256, w.access)
			setWord(win.m, windowWord, 0) // swapOp compares with 0, and then changes the word
			c.expectOpExecuted(0, w.granted, win.word())
			c.expectNoEffect(win.m, w.refused.packet(c.PeerPSN(1), win.word()), ib.NakRemoteAccess)
		})
	}
}

// bindID is the work request ID of binds.
const bindID = 1000

// bindableMemory registers memory that windows may be bound to.
func (c *Conn) bindableMemory() *rig.Memory { return c.Memory(4096, allAccess|verbs.AccessMWBind) }

// newWindow allocates a window.
func (c *Conn) newWindow(kind verbs.MWType) verbs.MW {
	mw, err := c.PD.AllocMW(kind)
	c.Must("a memory window", err)
	return mw
}

// bindRange returns the BindInfo for n bytes of a region from off on.
func bindRange(m *rig.Memory, off, n int, access verbs.Access) verbs.BindInfo {
	return verbs.BindInfo{MR: m.MR, Addr: m.Addr() + uint64(off), Length: uint64(n), Access: access}
}

// postBind posts a bind: by ibv_bind_mw for type 1, by a work request for type 2. It
// returns the R_Key that the window gets.
func (c *Conn) postBind(mw verbs.MW, flags verbs.SendFlags, info verbs.BindInfo) (verbs.RKey, error) {
	c.Note("bind a window of %v to %d bytes at %#x", mw.Type(), info.Length, info.Addr)
	if mw.Type() == verbs.MWType1 {
		return c.QP.BindMW(mw, bindID, flags, info)
	}
	key := verbs.NextRKey(mw.RKey())
	_, err := c.QP.PostSend([]verbs.SendWR{{
		WRID: bindID, Opcode: verbs.OpBindMW, Flags: flags, Bind: verbs.Bind{MW: mw, RKey: key, Info: info},
	}})
	return key, err
}

// boundWindow is a bound window.
type boundWindow struct {
	mw   verbs.MW
	m    *rig.Memory // the memory that bindWindow has registered; nil after bind
	addr uint64
	key  verbs.RKey
}

// bind binds a window, and fails the case unless the bind completes with success.
func (c *Conn) bind(mw verbs.MW, info verbs.BindInfo) boundWindow {
	key, err := c.postBind(mw, verbs.SendSignaled, info)
	c.Must("a window that can be bound", err)
	c.ExpectCompletion(bindID, verbs.WCSuccess)
	return boundWindow{mw: mw, addr: info.Addr, key: key}
}

// invalidate invalidates the key of a window by a request of the device.
func (c *Conn) invalidate(win boundWindow) {
	c.PostSend(c.QP, verbs.SendWR{WRID: bindID, Opcode: verbs.OpLocalInv, Flags: verbs.SendSignaled, InvalidateRKey: win.key})
	c.ExpectCompletion(bindID, verbs.WCSuccess)
}

// bindWindow binds a new window to n bytes of newly registered memory from off on.
func (c *Conn) bindWindow(kind verbs.MWType, off, n int, access verbs.Access) boundWindow {
	m := c.bindableMemory()
	win := c.bind(c.newWindow(kind), bindRange(m, off, n, access))
	win.m = m
	return win
}

// reth returns the RETH for n bytes of the window's range from off on.
func (w boundWindow) reth(off, n int) ib.RETH { return ib.At(w.addr+uint64(off), w.key, n) }

// windowWord is the index of a word in bytes 1024 to 1279 of memory, to which cases bind windows.
const windowWord = 130

// word returns the RETH for windowWord through the window.
func (w boundWindow) word() ib.RETH {
	return ib.At(w.m.Addr()+uint64(w.m.WordOffset(windowWord)), w.key, 8)
}

// expectBindFails fails the case unless a bind is rejected at the post or completes with an error.
func (c *Conn) expectBindFails(mw verbs.MW, flags verbs.SendFlags, info verbs.BindInfo) {
	if _, err := c.postBind(mw, flags, info); err == nil {
		c.ExpectCompletion(bindID, verbs.WCMWBindErr)
	}
}
