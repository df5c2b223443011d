package engine

import (
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// memoryDefects are about keys: who may reach, close and rebind what they name.
var memoryDefects = map[string]defectCase{
	"BindForeignRegion": {
		talk: func(c *talk) {
			w := c.window(verbs.MWType2)
			c.bindTo(c.foreignRegion(), w, 0, 64, verbs.AccessRemoteRead)
			c.done()
			c.note("bound: %v", w.Bound())
			c.standing()
		},
		sound:     "1 MW_BIND_ERR; bound: false; ERR",
		defective: "no completion; bound: true; RTS",
	},
	"IgnorePD": {
		talk:      func(c *talk) { c.readFrom(c.foreignRegion().Key, 0, 8) },
		sound:     "NAK 0 access msn 0",
		defective: "RR_ONLY 0 8B msn 1",
	},
	"WindowBounds": {
		talk:      func(c *talk) { c.readFrom(c.bindWindow(256), 252, 8) },
		sound:     "NAK 0 access msn 0",
		defective: "RR_ONLY 0 8B msn 1",
	},
	"WindowRights": {
		talk: func(c *talk) {
			w := c.window(verbs.MWType2)
			c.bind(w, targetAt, 256, verbs.AccessRemoteRead)
			c.send(wire.OpWriteOnly, 0, c.at(0, 8), rkey(w.Key), data(8), ackReq)
			c.hear()
		},
		sound:     "NAK 0 access msn 0",
		defective: "ACK 0 msn 1",
	},
	"WindowOwner": {
		talk: func(c *talk) {
			key := c.bindWindow(256)
			c.q = c.another(nil)
			c.readFrom(key, 0, 8)
		},
		sound:     "NAK 0 access msn 0",
		defective: "RR_ONLY 0 8B msn 1",
	},
	"ForeignInvalidate": {
		talk: func(c *talk) {
			key, owner := c.bindWindow(256), c.q
			c.q = c.another(nil)
			c.invalidate(key)
			c.q = owner
			c.readFrom(key, 0, 8)
		},
		sound:     "silence; 1 MW_BIND_ERR; RR_ONLY 0 8B msn 1",
		defective: "ACK 0 msn 1; 1 SUCCESS RECV inv 200; NAK 0 access msn 0",
	},
	"UnboundInvalidate": {
		talk:      func(c *talk) { c.invalidate(c.window(verbs.MWType2).Key) },
		sound:     "silence; 1 MW_BIND_ERR",
		defective: "ACK 0 msn 1; 1 SUCCESS RECV inv 200",
	},
	"InvalidateAnything": {
		talk: func(c *talk) {
			key := c.region(allAccess)
			c.invalidate(key)
			c.q = c.another(nil)
			c.readFrom(key, 0, 8)
		},
		sound:     "silence; 1 MW_BIND_ERR; RR_ONLY 0 8B msn 1",
		defective: "ACK 0 msn 1; 1 SUCCESS RECV inv 200; NAK 0 access msn 0",
	},
	"WrappingRange": {
		talk: func(c *talk) {
			c.send(wire.OpWriteOnly, 0, c.at(0, 8), data(8), ackReq, func(k *wire.Packet) { k.RETH.VA = ^uint64(3) })
			c.hear()
		},
		sound:     "NAK 0 access msn 0",
		defective: "ACK 0 msn 1",
	},
	"BindUnchecked": {
		talk: func(c *talk) {
			w := c.window(verbs.MWType2)
			c.bind(w, targetAt, memSize, verbs.AccessRemoteRead) // beyond the end
			c.done()
			c.readFrom(w.Key, 0, 8)
		},
		sound:     "1 MW_BIND_ERR; silence",
		defective: "no completion; RR_ONLY 0 8B msn 1",
	},
	"RebindBound": {
		talk: func(c *talk) {
			w := c.window(verbs.MWType2)
			c.bind(w, targetAt, 256, verbs.AccessRemoteRead)
			c.bind(w, targetAt, 512, verbs.AccessRemoteRead)
			c.done()
			c.readFrom(w.Key, 256, 8)
		},
		sound:     "1 MW_BIND_ERR; silence",
		defective: "no completion; RR_ONLY 0 8B msn 1",
	},
	"DeregBound": {
		talk: func(c *talk) {
			key := c.bindWindow(256)
			c.tried(c.h.nic.DeregMR(c.h.mr))
			c.readFrom(key, 0, 8)
		},
		sound:     "refused; RR_ONLY 0 8B msn 1",
		defective: "taken; RR_ONLY 0 8B msn 1",
	},
	"StaleKeys": {
		talk: func(c *talk) {
			c.must(c.h.nic.DeregMR(c.h.mr))
			c.readFrom(c.h.mr.Key, 0, 8)
		},
		sound:     "NAK 0 access msn 0",
		defective: "RR_ONLY 0 8B msn 1",
	},
	"ZeroBasedIgnored": {
		talk: func(c *talk) {
			mr, err := c.h.nic.RegMR(c.h.pd, nic.Bytes(c.h.mem), 0, allAccess|verbs.AccessZeroBased)
			c.must(err)
			c.send(wire.OpReadRequest, 0, func(k *wire.Packet) { k.RETH = wire.RETH{RKey: mr.Key, DMALen: 8} })
			c.hear()
		},
		sound:     "RR_ONLY 0 8B msn 1",
		defective: "NAK 0 access msn 0",
	},
	"NoWindowAtomics": {
		talk: func(c *talk) {
			clear(c.target(0, 8))
			c.send(wire.OpFetchAdd, 0, c.word(0, 5, 0), rkey(c.bindWindow(256)))
			c.hear()
		},
		sound:     "ATOMIC_ACKNOWLEDGE 0 was 0 msn 1",
		defective: "NAK 0 access msn 0",
	},
}

// write builds a WRITE of four bytes.
func (c *talk) write(k int) link.Datagram {
	return c.build(wire.OpWriteOnly, k, c.at(0, 4), data(4), ackReq)
}

// readFrom asks for n bytes of the target memory by the given key.
func (c *talk) readFrom(key uint32, off, n int) {
	c.Helper()
	c.send(wire.OpReadRequest, 0, c.at(off, n), rkey(key))
	c.hear()
}

// invalidate sends a message that closes what key names.
func (c *talk) invalidate(key uint32) {
	c.Helper()
	c.recv(1, 8)
	c.send(wire.OpSendOnlyInv, 0, inv(key), ackReq)
	c.hear()
	c.done()
}

func (c *talk) window(typ verbs.MWType) *nic.Window {
	c.Helper()
	w, err := c.h.nic.AllocMW(c.h.pd, typ)
	c.must(err)
	return w
}

// bind posts an unsignaled bind of n bytes from off on, and lets it happen.
func (c *talk) bind(w *nic.Window, off, n uint64, access verbs.Access) {
	c.Helper()
	c.bindTo(c.h.mr, w, off, n, access)
}

func (c *talk) bindTo(mr *nic.Region, w *nic.Window, off, n uint64, access verbs.Access) {
	c.Helper()
	wr := verbs.SendWR{WRID: 1, Opcode: verbs.OpBindMW}
	wr.Bind.RKey = verbs.RKey(w.Key)
	wr.Bind.Info.Addr, wr.Bind.Info.Length, wr.Bind.Info.Access = mr.Addr+off, n, access
	c.must(c.q.PostSend(c.now, &wr, Refs{Window: w, Region: mr}))
	c.skip()
}
