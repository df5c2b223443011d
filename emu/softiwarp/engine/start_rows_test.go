package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/emu/iwarp"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

var startRows = map[string]func(*testing.T){
	"rfc6581/5/1 rfc6581/9.2/12": func(t *testing.T) {
		for name, c := range map[string]struct {
			reply string // words 0 and 1 of the enhanced data
			op    wire.Opcode
			next  wire.MSN // of the read after it
			send  wire.MSN // of the send after that
		}{
			"write": {"80048004", wire.OpWrite, 1, 1},
			"read":  {"80044004", wire.OpReadRequest, 2, 1},
			"send":  {"c0040004", wire.OpSend, 1, 2},
		} {
			t.Run(name, func(t *testing.T) {
				h := newHost(t, peerToPeer)
				k := asInitiator(t, h, ConnParam{IRD: 4, ORD: 4}, "50020004"+c.reply)
				r, _ := h.region(8, allAccess)
				h.send(verbs.SendWR{WRID: 1, Opcode: verbs.OpRDMARead, SGL: []verbs.SGE{sge(r, 0, 8)}})
				h.send(verbs.SendWR{WRID: 2, Opcode: verbs.OpSend})
				segs := k.received()
				if len(segs) != 3 || segs[0].Control.Opcode != c.op || len(segs[0].Payload) != 0 || segs[0].ReadRequest.Size != 0 {
					t.Fatalf("%+v", segs)
				}
				if segs[1].Untagged.MSN != c.next || segs[2].Untagged.MSN != c.send {
					t.Errorf("numbers %d and %d, want %d and %d", segs[1].Untagged.MSN, segs[2].Untagged.MSN, c.next, c.send)
				}
			})
		}
	},
	"rfc6581/9.2/11 rfc6581/9.2/10 rfc5044/7.1.2/9": func(t *testing.T) {
		for name, rtr := range map[string]wire.Segment{
			"write": write(0xdeadbeef, ^uint64(0), nil),
			"read":  segment(wire.OpReadRequest, 1, nil),
			"send":  segment(wire.OpSend, 1, nil),
		} {
			t.Run(name, func(t *testing.T) {
				h := newHost(t)
				k := asResponder(t, h, "50020004"+"c004c004", ConnParam{IRD: 4, ORD: 4})
				if k.c.State() != Accepted {
					t.Errorf("%v before the RTR", k.c.State())
				}
				h.recv(9)
				h.send(verbs.SendWR{WRID: 1, Opcode: verbs.OpSend})
				if segs := k.received(); len(segs) != 0 {
					t.Errorf("before the RTR: %+v", segs)
				}
				h.wantSends()
				k.sendSegment(rtr)
				segs := k.received()
				want := 1
				if name == "read" {
					want = 2
				}
				if len(segs) != want || k.c.State() != Established {
					t.Errorf("after the RTR: %+v, %v", segs, k.c.State())
				}
				h.wantSends("1")
				if name == "send" {
					h.wantRecvs("9:0") // an ordinary message
				} else {
					h.wantRecvs()
				}
			})
		}
	},
	"rfc6581/9.3/1": func(t *testing.T) {
		h := newHost(t)
		c := must.Get(h.nic.Connect(h.qp, ConnParam{IRD: 4, ORD: 4}))(t)
		k := &tester{pipe: newPipe(t, c, nil), host: h, c: c}
		k.take(0)
		// The program fails its queue pair before the Reply arrives.
		must.Do(t, h.qp.Modify(0, verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState))
		reply := unhex(t, replyFrame+crcEnhanced)
		k.start(reply)
		k.give(0, reply)
		wantOctets(t, "Terminate", k.take(0)[:24], "0016"+terminateHeader+"20050000")
		if !k.fin[0] {
			t.Error("and no FIN")
		}
		c.InputEOF(k.now)
		if c.State() != Closed || !errors.Is(c.Err(), ErrAborted) {
			t.Errorf("%v %v", c.State(), c.Err())
		}
		h.wantState(verbs.QPStateErr)
	},
	"rfc6581/9.1/7 rfc6581/9.2/7": func(t *testing.T) {
		for reply, want := range map[string]wire.TermError{
			"000400c8": wire.TermMPANotEnoughReads, // the responder requests 200 outstanding reads
			"00040004": wire.TermMPANoRTR,          // it does not support the model
		} {
			h := newHost(t, func(c *Config, _ *iwarp.QueueConfig) { c.MPA.PeerToPeer = want == wire.TermMPANoRTR })
			k := asInitiator(t, h, ConnParam{IRD: 4, ORD: 4}, "50020004"+reply)
			wantOctets(t, want.String(), k.take(0)[:24], fmt.Sprintf("0016"+terminateHeader+"20%02x0000", want.Code))
			k.c.InputEOF(k.now)
			h.wantState(verbs.QPStateErr)
			if k.c.State() != Closed {
				t.Errorf("%v", k.c.State())
			}
		}
	},
}

// terminateHeader is the DDP header of a Terminate.
const terminateHeader = "414700000000000000020000000100000000"

const crcEnhanced = "5002000400040004" // CRCs, enhanced, four reads in each direction

var closeRows = map[string]func(*testing.T){
	"rfc5041/6.2/1 rfc5040/6.2.1/3 rfc5044/8/3": func(t *testing.T) {
		h := newHost(t)
		k := asResponder(t, h, crcEnhanced, ConnParam{IRD: 4, ORD: 4})
		k.sendSegment(write(7, 8, []byte("nowhere")))
		if g := k.receivedOne(); g.Terminate.Error != wire.TermTaggedSTag {
			t.Errorf("%+v", g.Terminate)
		}
		h.wantState(verbs.QPStateSQE)
		if !k.fin[0] {
			t.Error("the Terminate is not followed by a FIN")
		}
		k.c.InputEOF(k.now)
		h.wantState(verbs.QPStateErr)
		if k.c.State() != Closed || k.reset[0] {
			t.Errorf("%v, reset %v", k.c.State(), k.reset[0])
		}
		h.wantEvents(verbs.EventQPAccessErr)
	},
	"rfc5041/6.2.1/1": func(t *testing.T) {
		a, b := newHost(t), newHost(t)
		p := connect(t, a, b)
		p.maxWrite = 64
		var want []string
		for i := range uint64(50) {
			b.recv(i)
			a.send(verbs.SendWR{WRID: i, Opcode: verbs.OpSend})
			want = append(want, poll(a.SendCQ)...)
		}
		r, mem := a.region(8, allAccess)
		src, from := b.region(8, allAccess)
		copy(from, "answered")
		a.send(verbs.SendWR{WRID: 50, Opcode: verbs.OpRDMARead, SGL: []verbs.SGE{sge(r, 0, 8)}, Remote: verbs.Remote{Addr: src.Addr, RKey: verbs.RKey(src.Key)}})
		p.ca.Disconnect(p.now)
		p.run()
		if got := poll(a.SendCQ); len(got)+len(want) != 51 || slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, " ") }) {
			t.Errorf("%q", got)
		}
		if got := poll(b.RecvCQ); len(got) != 50 || got[49] != "49:0" {
			t.Errorf("%q", got)
		}
		if string(mem) != "answered" || p.ca.Err() != nil || p.cb.Err() != nil {
			t.Errorf("%q, %v, %v", mem, p.ca.Err(), p.cb.Err())
		}
	},
	"rfc5041/6.2.1/2": func(t *testing.T) {
		k := inState(t, verbs.QPStateSQD)
		if err := k.qp.PostSend(&verbs.SendWR{Opcode: verbs.OpSend}, Refs{}); err == nil {
			t.Error("a send is accepted after the close")
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
		k.sendSegment(g)
		k.c.InputEOF(k.now) // it closes its direction and awaits the response
		k.maxWrite = 777
		var got []byte
		for range 1000 {
			for _, s := range k.received() {
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
			"bad header": func(k *tester) { k.sendSegment(wire.Segment{}) },
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
