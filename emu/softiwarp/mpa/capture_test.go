package mpa

import (
	"bytes"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
)

// Two connections, with the parameters of two kernels in a capture, send exactly the kernels'
// octets, stale pads included.
func TestConnectionsReproduceKernelCaptures(t *testing.T) {
	paths, err := filepath.Glob("../../iwarp/wire/testdata/*.pcap")
	if err != nil || len(paths) != 10 {
		t.Fatalf("%d captures, %v", len(paths), err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	fpdus, connections := 0, 0
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			for _, capture := range testutil.ReadConversations(t, path) {
				connections++
				fpdus += replay(t, rng, capture)
			}
		})
	}
	if fpdus != 354 || connections != 16 {
		t.Errorf("%d FPDUs in %d connections", fpdus, connections)
	}
}

func replay(t *testing.T, rng *rand.Rand, capture *testutil.Conversation) (fpdus int) {
	t.Helper()
	var req, rep wire.StartFrame
	first := must.Get(req.Parse(capture.Initiator))(t)
	second := must.Get(rep.Parse(capture.Responder))(t)
	requested, private, _ := req.Split()
	replied, answer, _ := rep.Split()

	siw := Policy{StartupPolicy{NeverAskCRC: !req.CRC}, FPDUPolicy{ReusePad: true, ResponderSends: AfterReply}}
	initiator := NewInitiator(0, Config{IRD: requested.IRD, ORD: requested.ORD, PrivateData: private, Policy: siw})
	responder := NewResponder(0, Config{MaxIRD: 128, Policy: siw})
	same(t, "Request", written(initiator), capture.Initiator[:len(capture.Initiator)-len(first)])
	if es := inPieces(rng, responder, capture.Initiator[:len(capture.Initiator)-len(first)]); one(t, es).Kind != EventRequest {
		t.Fatalf("%+v", es)
	}
	must.Do(t, responder.Accept(AcceptParam{IRD: replied.IRD, ORD: replied.ORD, PrivateData: answer}))
	same(t, "Reply", written(responder), capture.Responder[:len(capture.Responder)-len(second)])
	if es := inPieces(rng, initiator, capture.Responder[:len(capture.Responder)-len(second)]); one(t, es).Kind != EventAccepted {
		t.Fatalf("%+v", es)
	}
	if p := initiator.Params(); p.ORD != min(requested.ORD, replied.IRD) {
		t.Errorf("negotiated %+v", p)
	}
	fpdus += repeat(t, rng, initiator, responder, first)
	fpdus += repeat(t, rng, responder, initiator, second)
	return fpdus
}

// repeat passes captured octets to to, and expects that from sends the same octets.
func repeat(t *testing.T, rng *rand.Rand, from, to *Conn, captured []byte) int {
	t.Helper()
	es := inPieces(rng, to, captured)
	var again []byte
	for _, e := range es {
		var s wire.Segment
		if e.Kind != EventULPDU || s.Parse(e.ULPDU) != nil {
			t.Fatalf("%+v", e)
		}
		if len(e.ULPDU) > from.MULPDU() {
			t.Errorf("ULPDU of %d octets, where MULPDU is %d", len(e.ULPDU), from.MULPDU())
		}
		head := len(e.ULPDU) - len(s.Payload)
		if !from.Room() {
			again = append(again, written(from)...)
		}
		from.Send(e.ULPDU[:head], [][]byte{e.ULPDU[head:]})
	}
	same(t, "stream", append(again, written(from)...), captured)
	return len(es)
}

func inPieces(rng *rand.Rand, c *Conn, b []byte) (es []Event) {
	for len(b) > 0 {
		n := min(len(b), 1+rng.IntN(2000)>>rng.IntN(10))
		es = append(es, give(c, b[:n])...)
		b = b[n:]
	}
	return es
}

func same(t *testing.T, what string, got, want []byte) {
	t.Helper()
	if bytes.Equal(got, want) {
		return
	}
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			t.Errorf("%s: octet %d of %d differs:\n%.60x, want\n%.60x", what, i, len(want), got[min(max(i-20, 0), len(got)):], want[max(i-20, 0):])
			return
		}
	}
	t.Errorf("%s: %d octets, want %d", what, len(got), len(want))
}
