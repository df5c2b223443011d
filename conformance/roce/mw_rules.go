package roce

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var windowRuleCases = overRC.Cases(append([]conformance.Case{{
	ID: "mw/access/type-1-in-its-own-domain-only", Cite: ibta("C10-76.2.1", "mw/15"), Needs: verbs.CapMWType1,
	Title:   "A type 1 window grants access only to requests on queue pairs of its protection domain",
	Sends:   "a READ and a WRITE through a window on the QP that bound it and on another of its domain; then on QPs of another domain",
	Expects: "the first are executed; a NAK for a remote access error for the others, and memory unchanged",
	Defects: []string{"IgnorePD"}, Run: OnPort(func(p *Port) {
		eachConn(p, Setup{}, []remoteOp{readOp, writeOp}, func(c *Conn, op remoteOp) {
			win := c.bindWindow(verbs.MWType1, 1024, 256, verbs.AccessRemoteRead|verbs.AccessRemoteWrite)
			c.expectOpExecuted(0, op, win.reth(0, 8))
			c.secondConn(Setup{}).expectOpExecuted(0, op, win.reth(8, 8))
			foreign := c.portInOtherPD().connect(Setup{})
			foreign.expectNoEffect(win.m, op.packet(foreign.PeerPSN(0), win.reth(0, 8)), ib.NakRemoteAccess)
		})
	}),
}, {
	ID: "mw/bind/type-1-not-by-a-request", Cite: ibta("o10-37.2.34", "mw/17"), Needs: verbs.CapMWType1,
	Title:   "A type 1 window cannot be bound by a posted request",
	Sends:   "posts a bind of a type 1 window; READs with its key and with the key of the bind",
	Expects: "an error at the post or of the completion; a NAK for a remote access error for the READs",
	Defects: []string{"MWTypesMixed"}, Run: onConn(Setup{}, func(c *Conn) {
		mw, m := c.newWindow(verbs.MWType1), c.bindableMemory()
		key := verbs.NextRKey(mw.RKey())
		n, err := c.QP.PostSend([]verbs.SendWR{{
			WRID: bindID, Opcode: verbs.OpBindMW, Flags: verbs.SendSignaled,
			Bind: verbs.Bind{MW: mw, RKey: key, Info: bindRange(m, 0, 64, verbs.AccessRemoteRead)},
		}})
		if err == nil && n == 1 {
			c.expectErrorCompletion(bindID)
		}
		c.expectKeysRefused(m.Addr(), mw.RKey(), key)
	}),
}, {
	ID: "mw/bind/type-2-not-by-the-verb", Cite: ibta("o10-37.2.35", "mw/18"), Needs: verbs.CapMWType2,
	Title:   "A type 2 window cannot be bound by the bind verb",
	Sends:   "a type 2 window to the bind verb; READs with its key and with the next one",
	Expects: "an error of the verb; a NAK for a remote access error for the READs",
	Defects: []string{"MWTypesMixed"}, Run: onConn(Setup{}, func(c *Conn) {
		mw, m := c.newWindow(verbs.MWType2), c.bindableMemory()
		key := verbs.NextRKey(mw.RKey())
		_, err := c.QP.BindMW(mw, bindID, verbs.SendSignaled, bindRange(m, 0, 64, verbs.AccessRemoteRead))
		c.MustFail("the bind verb with a type 2 window", err, nil)
		c.expectKeysRefused(m.Addr(), mw.RKey(), key)
	}),
}, {
	ID: "mw/bind/zero-based-region-refused", Cite: ibta("", "mw/19"), Level: conformance.Should, Needs: verbs.CapMWType2 | verbs.CapZeroBased,
	Title:   "A window cannot be bound to a zero-based region",
	Sends:   "binds a window of each type that the device has to a region whose addresses begin at zero",
	Expects: "an error at the post, or MW_BIND_ERR",
	Defects: []string{"BindUnchecked"}, Run: onEachWindowType(func(c *Conn, kind verbs.MWType) {
		m := c.Memory(4096, allAccess|verbs.AccessMWBind|verbs.AccessZeroBased)
		c.expectBindFails(c.newWindow(kind), verbs.SendSignaled, bindRange(m, 0, 64, verbs.AccessRemoteRead))
	}),
}}, freshKeyCase(1, verbs.MWType1, verbs.CapMWType1), freshKeyCase(2, verbs.MWType2, verbs.CapMWType2)))

// portInOtherPD returns a port of the same device whose objects are in another protection domain.
func (p *Port) portInOtherPD() *Port {
	return newPort(&rig.Rig{Bench: p.Bench, PD: p.otherPD(), CQ: p.CQ})
}

// freshKeyCase returns the case about the keys of windows that were never bound. number is that of
// the window type.
func freshKeyCase(number int, kind verbs.MWType, capability verbs.Caps) conformance.Case {
	return conformance.Case{
		ID: fmt.Sprintf("mw/alloc/type-%d-key-opens-nothing", number), Cite: ibta("o10-37.2.32", "mw/16"), Needs: capability,
		Title:   fmt.Sprintf("The key of a type %d window that was never bound grants no access", number),
		Sends:   "a READ, a WRITE and atomics with the keys of new windows",
		Expects: "keys that no other window or region has; a NAK for a remote access error for each request",
		Defects: []string{"AccessNAKsSwapped"}, Run: OnPort(func(p *Port) {
			ops, kinds := []remoteOp{readOp, writeOp}, []verbs.MWType{kind, kind, kind, kind}
			if p.Caps.Has(verbs.CapAtomics) {
				ops = append(ops, addOp, swapOp)
			}
			if p.Caps.Has(verbs.CapMWType1 | verbs.CapMWType2) {
				kinds = append(kinds, verbs.MWType1, verbs.MWType2, verbs.MWType1, verbs.MWType2)
			}
			eachConn(p, Setup{}, ops, func(c *Conn, op remoteOp) {
				setWord(c.TargetMem, 0, 0) // swapOp compares with 0, and would change the word
				keys := []verbs.RKey{c.TargetMem.RKey(), c.LocalMem.RKey()}
				for _, kind := range kinds {
					key := c.newWindow(kind).RKey()
					c.Check(!slices.Contains(keys, key), "a window with a key that no other window or region has", "%#x again", key)
					keys = append(keys, key)
				}
				at := wordRETH(c.TargetMem, 0)
				at.RKey = new(uint32(keys[2])) // of the first window
				c.expectOpRefused(op, at)
			})
		}),
	}
}

// expectKeysRefused fails the case unless READs at an address with these keys, each on a new
// connection, get a remote access NAK.
func (c *Conn) expectKeysRefused(addr uint64, keys ...verbs.RKey) {
	for i, key := range keys {
		conn := c.connect(Setup{Modify: func(a *verbs.QPAttr) { a.DestQPN = verbs.QPN(otherPeerQPN + i) }})
		c.Note("now key %s", fmt.Sprintf("%#x", key))
		conn.expectOpRefused(readOp, ib.At(addr, key, 8))
	}
}
