package verbcalls

import (
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// memoryTalks are about memory regions and windows.
var memoryTalks = map[string]defectTalk{
	"MRAddrIgnored": {
		talk: func(c *talk) {
			m := must.Get(c.dev.pd.RegMR(verbs.MRInit{Buf: make([]byte, 8), Addr: 4096}))(c)
			c.note("%v", m.Addr() == 4096)
			m = must.Get(c.dev.pd.RegMR(verbs.MRInit{Buf: make([]byte, 8), Addr: 4096, Access: verbs.AccessZeroBased}))(c)
			c.note("%v", m.Addr() == 0)
		},
		sound:     "true; true",
		defective: "false; true",
	},
	"MRKeysRepeat": {
		talk: func(c *talk) {
			m := must.Get(c.dev.pd.RegMR(verbs.MRInit{Buf: make([]byte, 8)}))(c)
			c.note("%v %v", m.LKey() == c.dev.mr.LKey(), m.RKey() == c.dev.mr.RKey())
		},
		sound:     "false false",
		defective: "true true",
	},
	"MRAccessUnchecked": {
		talk: func(c *talk) {
			for _, a := range []verbs.Access{verbs.AccessRemoteWrite, verbs.AccessRemoteAtomic} {
				_, err := c.dev.pd.RegMR(verbs.MRInit{Buf: make([]byte, 8), Access: a})
				c.tried(err)
			}
		},
		sound:     "refused; refused",
		defective: "taken; taken",
	},
	"HintsRefused": {
		talk: func(c *talk) {
			for _, a := range []verbs.Access{0, verbs.AccessRelaxedOrdering} {
				_, err := c.dev.pd.RegMR(verbs.MRInit{Buf: make([]byte, 8), Access: a})
				c.tried(err)
			}
		},
		sound:     "taken; taken",
		defective: "taken; refused",
	},
	"LocalWriteUnchecked": {
		talk: func(c *talk) {
			c.connect()
			m := must.Get(c.dev.pd.RegMR(verbs.MRInit{Buf: make([]byte, 8)}))(c)
			read := c.dev.wr(1, verbs.OpRDMARead)
			read.SGL = []verbs.SGE{verbs.SGEOf(m, 0, 8)}
			c.dev.send(read)
			c.dev.done()
		},
		sound:     "1 LOC_PROT_ERR 0B",
		defective: "1 SUCCESS 8B",
	},
	"DeregOverlapping": {
		talk: func(c *talk) {
			c.connect()
			beside := must.Get(c.dev.pd.RegMR(verbs.MRInit{Buf: c.dev.buf[64:]}))(c)
			must.Do(c, must.Get(c.dev.pd.RegMR(verbs.MRInit{Buf: c.dev.buf[8:64]}))(c).Close())
			c.tried(beside.Close())
			c.tried(c.dev.mr.Close())
		},
		sound:     "taken; taken",
		defective: "taken; refused",
	},
	"BindKeepsKey": {
		talk: func(c *talk) {
			c.connect()
			w := must.Get(c.dev.pd.AllocMW(verbs.MWType1))(c)
			before := w.RKey()
			key := must.Get(c.dev.qp.BindMW(w, 1, verbs.SendSignaled, c.dev.all()))(c)
			c.dev.done()
			c.note("%v %v", key == before, w.RKey() == before)
		},
		sound:     "1 SUCCESS 0B; false false",
		defective: "1 SUCCESS 0B; true true",
	},
	"MWKeyStale": {
		talk: func(c *talk) {
			c.connect()
			w := must.Get(c.dev.pd.AllocMW(verbs.MWType2))(c)
			key := verbs.NextRKey(w.RKey())
			c.dev.post(c.dev.bind(1, w, key))
			c.dev.done()
			c.note("%v", w.RKey() == key)
		},
		sound:     "1 SUCCESS 0B; true",
		defective: "1 SUCCESS 0B; false",
	},
	"MWTypesMixed": {
		talk: func(c *talk) {
			c.connect()
			w := must.Get(c.dev.pd.AllocMW(verbs.MWType2))(c)
			_, err := c.dev.qp.BindMW(w, 1, verbs.SendSignaled, c.dev.all())
			c.tried(err)
			c.dev.done()
		},
		sound:     "refused",
		defective: "taken; 1 SUCCESS 0B",
	},
	"BoundMWBusy": {
		talk: func(c *talk) {
			c.connect()
			for _, bound := range []bool{false, true} {
				w := must.Get(c.dev.pd.AllocMW(verbs.MWType2))(c)
				if bound {
					c.dev.post(c.dev.bind(1, w, verbs.NextRKey(w.RKey())))
				}
				c.tried(w.Close())
			}
		},
		sound:     "taken; taken",
		defective: "taken; refused",
	},
	"LocalInvNoop": {
		talk: func(c *talk) {
			w := must.Get(c.dev.pd.AllocMW(verbs.MWType2))(c)
			key := verbs.NextRKey(w.RKey())
			inv := verbs.SendWR{WRID: 2, Opcode: verbs.OpLocalInv, Flags: verbs.SendSignaled, InvalidateRKey: key}
			c.dev.send(inv)
			c.connect()
			c.dev.post(c.dev.bind(1, w, key), inv)
			c.dev.done()
			write := c.peer.wr(3, verbs.OpRDMAWrite)
			write.Remote.RKey = key
			c.peer.post(write)
			c.peer.done()
		},
		sound:     "0 invalid; 1 SUCCESS 0B; 2 SUCCESS 0B; 3 REM_ACCESS_ERR 0B",
		defective: "0 invalid; 1 SUCCESS 0B; 2 SUCCESS 0B; 3 SUCCESS 0B",
	},
}

// all is what a bind to the side's memory opens.
func (s *side) all() verbs.BindInfo {
	return verbs.BindInfo{MR: s.mr, Addr: s.mr.Addr(), Length: uint64(len(s.buf)), Access: verbs.AccessRemoteWrite}
}

// bind is a signaled request that binds a type 2 window to the side's memory.
func (s *side) bind(id uint64, w verbs.MW, key verbs.RKey) verbs.SendWR {
	return verbs.SendWR{WRID: id, Opcode: verbs.OpBindMW, Flags: verbs.SendSignaled, Bind: verbs.Bind{MW: w, RKey: key, Info: s.all()}}
}

// A type 1 window is bound by a request that MWTypesMixed takes as BindMW would,
// whatever the device has to say to such a request: with the key that follows.
func TestRequestsBindWindowsOfEitherType(t *testing.T) {
	got := play(t, Defects{MWTypesMixed: true}, func(c *talk) {
		c.connect()
		w := must.Get(c.dev.pd.AllocMW(verbs.MWType1))(c)
		key := verbs.NextRKey(w.RKey())
		c.dev.post(c.dev.bind(1, w, key+7))
		c.dev.done()
		c.note("%v", w.RKey() == key)
	})
	if got != "1 SUCCESS 0B; true" {
		t.Error(got)
	}
}
