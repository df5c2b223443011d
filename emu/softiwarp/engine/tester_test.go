package engine

import (
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/internal/must"
)

// tester is a script that talks to a NIC octet by octet: the NIC is end 0.
type tester struct {
	*pipe
	*host
	c      *Conn
	framer wire.Framer
	parser *wire.Deframer
}

// unhex reads hex, which may have spaces.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b := must.Get(hex.DecodeString(strings.ReplaceAll(s, " ", "")))(t)
	return b
}

const (
	requestFrame = "4d504120494420526571204672616d65"
	replyFrame   = "4d504120494420526570204672616d65"
)

// asResponder connects a host that was asked by the tester. flags and tail are of
// the Request.
func asResponder(t testing.TB, h *host, request string, p ConnParam) *tester {
	t.Helper()
	c := h.nic.Incoming()
	k := &tester{pipe: newPipe(t, c, nil), host: h, c: c}
	k.give(0, unhex(t, requestFrame+request))
	if c.State() != Requested {
		t.Fatalf("the Request is not taken: %v %v", c.State(), c.Err())
	}
	must.Do(t, c.Accept(0, h.qp, p))
	k.start(k.take(0))
	return k
}

// asInitiator connects a host to the tester, who answers with reply.
func asInitiator(t testing.TB, h *host, p ConnParam, reply string) *tester {
	t.Helper()
	c := must.Get(h.nic.Connect(h.qp, p))(t)
	k := &tester{pipe: newPipe(t, c, nil), host: h, c: c}
	if got := string(k.take(0)); !strings.HasPrefix(got, wire.RequestKey) {
		t.Fatalf("no Request: %x", got)
	}
	b := unhex(t, replyFrame+reply)
	k.give(0, b)
	k.start(b)
	return k
}

// start learns from a Reply how FPDUs are framed.
func (k *tester) start(reply []byte) {
	f := wire.Framing{CRC: reply[16]&0x40 != 0}
	k.framer, k.parser = wire.NewFramer(f), wire.NewDeframer(f)
}

// say sends the NIC a segment.
func (k *tester) say(g wire.Segment) { k.give(0, k.framer.Append(nil, g.Append(nil))) }

// hear returns the segments that the NIC has sent since.
func (k *tester) hear() (segs []wire.Segment) {
	k.pipe.t.Helper()
	b := k.take(0)
	for len(b) > 0 {
		f, rest, ok := k.parser.Next(b)
		b = rest
		if !ok {
			break
		}
		if f.CRCStatus == wire.CRCBad {
			k.pipe.t.Errorf("an FPDU has a wrong CRC: %x", f.ULPDU)
		}
		var g wire.Segment
		if err := g.Parse(slices.Clone(f.ULPDU)); err != nil {
			k.pipe.t.Fatalf("%x: %v", f.ULPDU, err)
		}
		segs = append(segs, g)
	}
	return segs
}

// hearOne returns the only segment that the NIC has sent.
func (k *tester) hearOne() wire.Segment {
	k.pipe.t.Helper()
	segs := k.hear()
	if len(segs) != 1 {
		k.pipe.t.Fatalf("%d segments, want 1: %+v", len(segs), segs)
	}
	return segs[0]
}

func segment(op wire.Opcode, msn wire.MSN, payload []byte) (g wire.Segment) {
	g.Control = wire.NewControl(op, true)
	info, _ := op.Info()
	g.Untagged = wire.Untagged{QN: info.Queue, MSN: msn}
	g.Payload = payload
	return g
}

func write(stag uint32, to uint64, payload []byte) (g wire.Segment) {
	g.Control = wire.NewControl(wire.OpWrite, true)
	g.Tagged = wire.Tagged{STag: wire.STag(stag), TO: to}
	g.Payload = payload
	return g
}
