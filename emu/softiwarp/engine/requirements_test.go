package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// rows has a test for the requirements that neither an MPA connection nor a
// stream can meet by itself, by their numbers in the list of requirements.
var rows = joined(closeRows, startRows, queueRows)

func joined(parts ...map[string]func(*testing.T)) map[string]func(*testing.T) {
	all := map[string]func(*testing.T){}
	for _, part := range parts {
		for ids, f := range part {
			for _, id := range strings.Fields(ids) {
				if all[id] != nil {
					panic("two tests for " + id)
				}
				all[id] = f
			}
		}
	}
	return all
}

func TestRequirements(t *testing.T) {
	for _, id := range slices.Sorted(maps.Keys(rows)) {
		t.Run(id, rows[id])
	}
	// What the lists of the other two packages leave to the engine.
	for _, id := range []string{
		"rfc5041/6.2/1", "rfc5041/6.2.1/1", "rfc5041/6.2.1/2", "rfc5041/6.2.1/3", "rfc5041/6.2.2/1",
		"rfc5040/5.3/6", "rfc5040/6.2.1/3", "rfc5040/8.1.1/1", "rfc5040/8.1.1/2",
		"rfc5042/6.4.3.1/1", "rfc5042/6.4.3.3/1", "rfc5042/6.4.6/1",
		"rfc6581/5/1", "rfc6581/9.2/11", "rfc6581/9.2/12", "rfc6581/9.3/1",
	} {
		if rows[id] == nil {
			t.Errorf("%s has no test", id)
		}
	}
}

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

var startRows = map[string]func(*testing.T){
	"rfc6581/5/1 rfc6581/9.2/12": func(t *testing.T) {
		for name, c := range map[string]struct {
			reply string // word 0 and 1 of the enhanced data
			op    wire.Opcode
			next  wire.MSN // of the read behind it
			send  wire.MSN // of the send behind that
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
				segs := k.hear()
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
				if segs := k.hear(); len(segs) != 0 {
					t.Errorf("before the RTR: %+v", segs)
				}
				h.wantSends()
				k.say(rtr)
				segs := k.hear()
				want := 1
				if name == "read" {
					want = 2
				}
				if len(segs) != want || k.c.State() != Established {
					t.Errorf("after the RTR: %+v, %v", segs, k.c.State())
				}
				h.wantSends("1")
				if name == "send" {
					h.wantRecvs("9:0") // it is a message like any other
				} else {
					h.wantRecvs()
				}
			})
		}
	},
	"rfc6581/9.3/1": func(t *testing.T) {
		h := newHost(t)
		c, err := h.nic.Connect(h.qp, ConnParam{IRD: 4, ORD: 4})
		if err != nil {
			t.Fatal(err)
		}
		k := &tester{pipe: newPipe(t, c, nil), host: h, c: c}
		k.take(0)
		// The program fails its queue pair before the Reply comes.
		if err := h.qp.Modify(0, verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState); err != nil {
			t.Fatal(err)
		}
		reply := unhex(t, replyFrame+crcEnhanced)
		k.start(reply)
		k.give(0, reply)
		wantOctets(t, "Terminate", k.take(0)[:24], "0016"+terminateHeader+"20050000")
		if !k.fin[0] {
			t.Error("and no FIN")
		}
		c.InputEOF(k.now)
		if c.State() != Closed || c.Err() == nil {
			t.Errorf("%v %v", c.State(), c.Err())
		}
		h.wantState(verbs.QPStateErr)
	},
	"rfc6581/9.1/7 rfc6581/9.2/7": func(t *testing.T) {
		for reply, want := range map[string]wire.TermError{
			"000400c8": wire.TermMPANotEnoughReads, // the responder wants 200 reads under way
			"00040004": wire.TermMPANoRTR,          // it does not know the model
		} {
			h := newHost(t, func(c *Config, _ *QPConfig) { c.MPA.PeerToPeer = want == wire.TermMPANoRTR })
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

var queueRows = map[string]func(*testing.T){
	"rfc5040/5.3/6": func(t *testing.T) {
		h := newHost(t)
		k := asResponder(t, h, crcEnhanced, ConnParam{IRD: 4, ORD: 4})
		for i := range uint64(3) {
			h.recv(i)
		}
		h.recvCQ.Arm(true)
		k.say(segment(wire.OpSend, 1, nil))
		if h.nic.CompletionEvents() != 0 {
			t.Error("a plain Send raises an event")
		}
		k.say(segment(wire.OpSendSE, 2, nil))
		if cq, ok := h.nic.NextCompletionEvent(); !ok || cq != h.recvCQ {
			t.Error("a Send with solicited event raises none")
		}
	},
	"rfc5040/8.1.1/1": func(t *testing.T) {
		h := newHost(t)
		steps := map[uint32]int{}
		last := uint32(0)
		for range 100 {
			r, _ := h.region(1, allAccess)
			steps[r.Key-last]++
			last = r.Key
		}
		for step, n := range steps {
			if n > 5 {
				t.Errorf("%d of 100 keys are %#x after the one before", n, step)
			}
		}
	},
	"rfc5040/8.1.1/2 rfc5042/6.4.6/1": func(t *testing.T) {
		// Two connections of one NIC; the completion queue of one runs over.
		a := newHost(t)
		small := a.cq(2)
		b, c := newHost(t), newHost(t)
		over := &host{t: t, nic: a.nic, pd: a.pd, sendCQ: a.sendCQ, recvCQ: small}
		over.qp = over.newQP(QPConfig{Type: verbs.QPTypeRC, PD: a.pd, SendCQ: a.sendCQ, RecvCQ: small, Caps: verbs.QPCaps{MaxRecvWR: 8}})
		p, q := connect(t, b, a), connect(t, c, over)
		for i := range uint64(4) {
			over.recv(i)
			a.recv(i)
			c.send(verbs.SendWR{WRID: i, Opcode: verbs.OpSend})
			b.send(verbs.SendWR{WRID: i, Opcode: verbs.OpSend})
		}
		q.run()
		p.run()
		over.wantState(verbs.QPStateErr)
		if term, received, ok := c.qp.Terminate(); !ok || !received || term.Error != wire.TermRDMAPLocal {
			t.Errorf("the peer heard %+v", term)
		}
		a.wantState(verbs.QPStateRTS)
		a.wantRecvs("0:0", "1:0", "2:0", "3:0")
		if a.nic.CQOverruns != 1 {
			t.Errorf("%d overruns", a.nic.CQOverruns)
		}
	},
	"rfc5042/6.4.3.1/1": func(t *testing.T) {
		h := newHost(t)
		srq, err := h.nic.CreateSRQ(nic.SRQConfig{PD: h.pd, MaxWR: 8, MaxSGE: 1, Limit: 3})
		if err != nil {
			t.Fatal(err)
		}
		h.qp = h.newQP(QPConfig{Type: verbs.QPTypeRC, PD: h.pd, SendCQ: h.sendCQ, RecvCQ: h.recvCQ, SRQ: srq})
		k := asResponder(t, h, crcEnhanced, ConnParam{IRD: 4, ORD: 4})
		if err := h.qp.PostRecv(&verbs.RecvWR{}); err == nil {
			t.Error("a receive of its own")
		}
		for i := range uint64(4) {
			if err := srq.PostRecv(&verbs.RecvWR{WRID: i}); err != nil {
				t.Fatal(err)
			}
		}
		k.say(segment(wire.OpSend, 1, nil))
		h.wantEvents()
		k.say(segment(wire.OpSend, 2, nil))
		h.wantEvents(verbs.EventSRQLimitReached)
		h.wantRecvs("0:0", "1:0")
		// What is left belongs to others when the queue pair fails.
		k.say(write(1, 2, []byte{3}))
		h.wantRecvs()
		h.wantEvents(verbs.EventQPAccessErr, verbs.EventQPLastWQEReached)
		if srq.Count() != 2 {
			t.Errorf("%d receives left", srq.Count())
		}
	},
	"rfc5042/6.4.3.3/1": func(t *testing.T) {
		a := newHost(t)
		other := &host{t: t, nic: a.nic, pd: a.pd, sendCQ: a.sendCQ, recvCQ: a.recvCQ}
		other.qp = other.newQP(QPConfig{Type: verbs.QPTypeRC, PD: a.pd, SendCQ: a.sendCQ, RecvCQ: a.recvCQ})
		k, l := asResponder(t, a, crcEnhanced, ConnParam{IRD: 4, ORD: 4}), asResponder(t, other, crcEnhanced, ConnParam{IRD: 4, ORD: 4})
		for i := range 4 { // as many as the first may have, and none is answered
			k.say(segment(wire.OpReadRequest, wire.MSN(i+1), nil))
		}
		for i := range 4 {
			l.say(segment(wire.OpReadRequest, wire.MSN(i+1), nil))
		}
		if got := len(l.hear()); got != 4 {
			t.Errorf("%d of 4 reads answered", got)
		}
	},
}

func TestASendThatFindsNoReceiveEndsTheConnection(t *testing.T) {
	a, b := newHost(t), newHost(t)
	p := connect(t, a, b)
	a.send(verbs.SendWR{WRID: 1, Opcode: verbs.OpSend})
	p.run()
	a.wantSends("1") // TCP took it
	b.wantEvents(verbs.EventQPReqErr)
	a.wantEvents(verbs.EventQPFatal)
	for _, h := range []*host{a, b} {
		term, received, ok := h.qp.Terminate()
		if !ok || received != (h == a) || term.Error != wire.TermUntaggedNoBuffer || !term.HasDDP || term.DDP.Untagged.MSN != 1 {
			t.Errorf("%+v %v %v", term, received, ok)
		}
		h.wantState(verbs.QPStateErr)
	}
	if err := a.qp.PostSend(&verbs.SendWR{WRID: 2, Opcode: verbs.OpSend}, &Refs{}); err != nil {
		t.Fatal(err)
	}
	var wc [1]verbs.WC
	if n, _ := a.sendCQ.Poll(wc[:]); n != 1 || wc[0].Status != verbs.WCWRFlushErr {
		t.Fatalf("%+v", wc)
	}
	if e, received, ok := TerminateOf(wc[0].VendorErr); !ok || !received || e != wire.TermUntaggedNoBuffer {
		t.Errorf("VendorErr %#x stands for %v", wc[0].VendorErr, e)
	}
	if a.nic.layer.Count.TerminatesReceived.Of(wire.TermUntaggedNoBuffer) != 1 || b.nic.layer.Count.TerminatesSent.Of(wire.TermUntaggedNoBuffer) != 1 {
		t.Error("not counted")
	}
	p.later(time.Hour, a.nic, b.nic)
}
