package mpa

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// survive passes b to c in pieces that seed decides, acts as an application, and checks c's limits
// and invariants.
func survive(t *testing.T, c *Conn, b []byte, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 3))
	open, ended := c.state == fullOperation, false
	for len(b) > 0 {
		n := min(len(b), 1+rng.IntN(600)>>rng.IntN(9))
		c.Input(1, b[:n])
		b = b[n:]
		for e, ok := c.Next(); ok; e, ok = c.Next() {
			if ended {
				t.Fatalf("%+v after the end", e)
			}
			switch e.Kind {
			case EventRequest:
				if len(e.PrivateData) > wire.MaxPrivateData || open {
					t.Fatalf("%+v", e)
				}
				if rng.IntN(4) == 0 {
					_ = c.Reject(AcceptParam{})
					ended = true
				} else if err := c.Accept(AcceptParam{IRD: 4, ORD: 4}); err != nil {
					t.Fatal(err)
				}
				open = true
			case EventAccepted:
				open = true
			case EventULPDU:
				if !open || !c.MaySend() || len(e.ULPDU) > wire.MaxULPDU {
					t.Fatalf("%+v", e)
				}
			case EventError:
				ended = true
				if (e.Reaction == TerminateThenClose) != c.MaySend() || e.Term.Layer != wire.LayerMPA {
					t.Fatalf("%+v, may send: %v", e, c.MaySend())
				}
			case EventRejected:
				ended = true
			default:
				t.Fatalf("%+v", e)
			}
			if c.Room() && rng.IntN(3) == 0 {
				c.Send(b[:min(len(b), 18)], [][]byte{b[min(len(b), 18):min(len(b), 900)]})
			}
		}
		if rng.IntN(3) == 0 {
			written(c)
		}
		if c.in != nil || cap(c.startFrame) > 2*(wire.StartFrameLen+wire.MaxPrivateData) {
			t.Fatalf("keeps %d and %d octets", len(c.in), cap(c.startFrame))
		}
		if c.deframer != nil && c.deframer.Pending() > wire.MaxFPDULen {
			t.Fatalf("keeps %d octets of an FPDU", c.deframer.Pending())
		}
	}
	// At the end c has stopped or waits for input, with a deadline during start-up, and within an
	// FPDU if FPDUTimeout is set.
	starting := c.state == waitRequest || c.state == waitReply
	stalled := c.cfg.FPDUTimeout > 0 && c.state == fullOperation && c.deframer.Pending() > 0
	if (starting || stalled) != (c.Deadline() != mono.Never) {
		t.Fatalf("state %d, deadline %v", c.state, c.Deadline())
	}
	if starting || stalled {
		c.Tick(c.Deadline())
		if e := one(t, drain(c)); starting && e.Kind != EventTimeout || stalled && e.Err != ErrStalledFPDU {
			t.Fatalf("%+v", e)
		}
		ended = true
	}
	c.InputEOF()
	es := drain(c)
	if ended == (len(es) == 1) || len(es) > 1 {
		t.Fatalf("ended: %v, then %+v", ended, es)
	}
	written(c)
	if c.state == finished && !over(c) {
		t.Fatal("over with output queued")
	}
}

func framesToFuzz(reply bool) (all [][]byte) {
	for _, e := range []wire.Enhanced{{}, {IRD: 3, ORD: 0x3fff}, {PeerToPeer: true, RTRWrite: true, IRD: 1, ORD: 1}, {PeerToPeer: true}} {
		f := enhance(wire.StartFrame{Reply: reply, Markers: e.IRD == 3, CRC: true}, e)
		all = append(all, f.Append(nil))
		f.Revision, f.Reject = 1, true
		all = append(all, f.Append(nil))
	}
	return all
}

// FuzzListening passes any octets to a responder.
func FuzzListening(f *testing.F) {
	for i, b := range framesToFuzz(false) {
		f.Add(b, uint8(i), uint64(i))
		f.Add(append(b, stream(crcOn, pattern(18, 0))...), uint8(i), uint64(i))
	}
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), uint8(0), uint64(0))
	f.Fuzz(func(t *testing.T, b []byte, options uint8, seed uint64) {
		cfg := Config{Markers: options&1 != 0, NoCRC: options&2 != 0, Consortium: options&4 != 0, MaxIRD: 9}
		if options&8 != 0 {
			cfg.MaxRevision = 1
		}
		survive(t, NewResponder(0, cfg), b, seed)
	})
}

// FuzzConnecting passes any octets to an initiator.
func FuzzConnecting(f *testing.F) {
	for i, b := range framesToFuzz(true) {
		f.Add(b, uint8(i), uint64(i))
		f.Add(append(b, stream(crcOn, pattern(18, 0))...), uint8(i), uint64(i))
	}
	f.Fuzz(func(t *testing.T, b []byte, options uint8, seed uint64) {
		cfg := Config{Markers: options&1 != 0, NoCRC: options&2 != 0, Consortium: options&4 != 0, PeerToPeer: options&16 != 0, IRD: 2}
		if options&8 != 0 && !cfg.PeerToPeer {
			cfg.MaxRevision = 1
		}
		survive(t, NewInitiator(0, cfg), b, seed)
	})
}

// FuzzTalking passes any octets after the start-up.
func FuzzTalking(f *testing.F) {
	for i, framing := range framings {
		b := stream(framing, pattern(18, 0), pattern(1400, 1), nil, pattern(500, 2))
		f.Add(b, uint8(i), uint64(i))
		f.Add(b[:700], uint8(i|8), uint64(i))
	}
	f.Fuzz(func(t *testing.T, b []byte, options uint8, seed uint64) {
		cfg := Config{FPDUTimeout: time.Duration(options>>3&1) * time.Second}
		survive(t, responding(t, cfg, framings[options&3], wire.Framing{Markers: options&4 != 0, CRC: framings[options&3].CRC}), b, seed)
	})
}
