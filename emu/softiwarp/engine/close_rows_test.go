package engine

import (
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/verbs"
)

// terminateHeader is what DDP puts in front of a Terminate.
const terminateHeader = "414700000000000000020000000100000000"

const crcEnhanced = "5002000400040004" // CRCs, enhanced, four reads each way

var closeRows = map[string]func(*testing.T){
	"rfc5041/6.2/1 rfc5040/6.2.1/3 rfc5044/8/3": func(t *testing.T) {
		h := newHost(t)
		k := asResponder(t, h, crcEnhanced, ConnParam{IRD: 4, ORD: 4})
		k.say(write(7, 8, []byte("nowhere")))
		if g := k.hearOne(); g.Terminate.Error != wire.TermTaggedSTag {
			t.Errorf("%+v", g.Terminate)
		}
		h.wantState(verbs.QPStateSQE)
		if !k.fin[0] {
			t.Error("the Terminate is not followed by a FIN")
		}
		k.c.InputEOF(k.now)
		h.wantState(verbs.QPStateErr)
		if k.c.State() != Closed || k.gone[0] {
			t.Errorf("%v, broken %v", k.c.State(), k.gone[0])
		}
		h.wantEvents(verbs.EventQPAccessErr)
	},
	"rfc5041/6.2.1/1": func(t *testing.T) {
		a, b := newHost(t), newHost(t)
		p := connect(t, a, b)
		p.most = 64
		var want []string
		for i := range uint64(50) {
			b.recv(i)
			a.send(verbs.SendWR{WRID: i, Opcode: verbs.OpSend})
			want = append(want, poll(a.sendCQ)...)
		}
		r, mem := a.region(8, allAccess)
		src, from := b.region(8, allAccess)
		copy(from, "answered")
		a.send(verbs.SendWR{WRID: 50, Opcode: verbs.OpRDMARead, SGL: []verbs.SGE{sge(r, 0, 8)}, Remote: verbs.Remote{Addr: src.Addr, RKey: verbs.RKey(src.Key)}})
		p.ca.Disconnect(p.now)
		p.run()
		if got := poll(a.sendCQ); len(got)+len(want) != 51 || slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, " ") }) {
			t.Errorf("%q", got)
		}
		if got := poll(b.recvCQ); len(got) != 50 || got[49] != "49:0" {
			t.Errorf("%q", got)
		}
		if string(mem) != "answered" || p.ca.Err() != nil || p.cb.Err() != nil {
			t.Errorf("%q, %v, %v", mem, p.ca.Err(), p.cb.Err())
		}
	},
	"rfc5041/6.2.1/2": func(t *testing.T) {
		k := inState(t, verbs.QPStateSQD)
		if err := k.qp.PostSend(&verbs.SendWR{Opcode: verbs.OpSend}, &Refs{}); err == nil {
			t.Error("a send is taken after the close")
		}
	},
	"rfc5041/6.2.1/3": func(t *testing.T) {
		h := newHost(t)
		k := asResponder(t, h, crcEnhanced, ConnParam{IRD: 4, ORD: 4})
		r, mem := h.region(50000, allAccess)
		for i := range mem {
			mem[i] = byte(i * 3)
		}
		g := segment(wire.OpReadRequest, 1, nil)
		g.ReadRequest = wire.ReadRequest{SinkSTag: 1, Size: 50000, SrcSTag: wire.STag(r.Key), SrcTO: r.Addr}
		k.say(g)
		k.c.InputEOF(k.now) // it asks no more, and wants its answer
		k.most = 777
		var got []byte
		for range 1000 {
			for _, s := range k.hear() {
				got = append(got, s.Payload...)
			}
			if k.fin[0] {
				break
			}
		}
		if string(got) != string(mem) {
			t.Errorf("%d of 50000 octets, or wrong ones", len(got))
		}
		if k.c.State() != Closed || k.c.Err() != nil {
			t.Errorf("%v %v", k.c.State(), k.c.Err())
		}
		h.wantState(verbs.QPStateErr)
	},
	"rfc5041/6.2.2/1": func(t *testing.T) {
		for name, do := range map[string]func(*tester){
			"reset": func(k *tester) { k.c.Failed(k.now, link.ErrReset) },
			"wrong CRC": func(k *tester) {
				b := k.framer.Append(nil, make([]byte, 18))
				b[len(b)-1]++
				k.give(0, b)
			},
			"bad header": func(k *tester) { k.say(wire.Segment{}) },
			"cut FPDU":   func(k *tester) { k.give(0, []byte{0, 18, 0x41}); k.c.InputEOF(k.now) },
		} {
			t.Run(name, func(t *testing.T) {
				h := newHost(t)
				k := asResponder(t, h, crcEnhanced, ConnParam{IRD: 4, ORD: 4})
				do(k)
				if got := h.events(); len(got) != 1 || got[0] != verbs.EventQPFatal && got[0] != verbs.EventQPReqErr {
					t.Errorf("events %v", got)
				}
				if k.c.Err() == nil {
					t.Error("the connection has no error")
				}
			})
		}
	},
}
