package mpa

import (
	"bytes"
	"encoding/hex"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
)

const notNegotiated = wire.DepthNotNegotiated

// plainConfig returns a configuration that needs no enhanced start-up.
func plainConfig() Config { return Config{IRD: notNegotiated, ORD: notNegotiated} }

func fromHex(t testing.TB, s string) []byte {
	t.Helper()
	b := must.Get(hex.DecodeString(s))(t)
	return b
}

// give passes b to c in one piece and returns copies of its events.
func give(c *Conn, b []byte) []Event {
	c.Input(0, b)
	return drain(c)
}

func drain(c *Conn) (all []Event) {
	for e, ok := c.Next(); ok; e, ok = c.Next() {
		e.ULPDU, e.PrivateData = slices.Clone(e.ULPDU), slices.Clone(e.PrivateData)
		if e.Params != nil {
			p := *e.Params
			e.Params = &p
		}
		all = append(all, e)
	}
	return all
}

// giveOne is give for input with exactly one event.
func giveOne(t testing.TB, c *Conn, b []byte) Event {
	t.Helper()
	return one(t, give(c, b))
}

func one(t testing.TB, es []Event) Event {
	t.Helper()
	if len(es) != 1 {
		t.Fatalf("%d events, want 1: %+v", len(es), es)
	}
	return es[0]
}

// written returns all output of c, as accepted by TCP.
func written(c *Conn) (b []byte) {
	for {
		vs := c.Output(nil)
		if len(vs) == 0 {
			return b
		}
		n := 0
		for _, v := range vs {
			b = append(b, v...)
			n += len(v)
		}
		c.Sent(n)
	}
}

// parse parses the only start-up frame in b.
func parse(t testing.TB, b []byte) (f wire.StartFrame) {
	t.Helper()
	rest, err := f.Parse(b)
	if err != nil || len(rest) > 0 {
		t.Fatalf("start-up frame %x: %v, %d octets after it", b, err, len(rest))
	}
	return f
}

// request and reply return frames without options.
func request(private ...byte) wire.StartFrame {
	return wire.StartFrame{Revision: 1, CRC: true, PrivateData: private}
}

func reply(private ...byte) wire.StartFrame {
	return wire.StartFrame{Reply: true, Revision: 1, CRC: true, PrivateData: private}
}

// enhance makes f an enhanced frame.
func enhance(f wire.StartFrame, e wire.Enhanced) wire.StartFrame {
	f.Revision, f.Enhanced = 2, true
	f.PrivateData = append(e.Append(nil), f.PrivateData...)
	return f
}

// receivesRequest passes f to a new responder, for which it must be a valid Request.
func receivesRequest(t testing.TB, cfg Config, f wire.StartFrame) (*Conn, Event) {
	t.Helper()
	c := NewResponder(0, cfg)
	e := giveOne(t, c, f.Append(nil))
	if e.Kind != EventRequest || e.Reaction != GoOn {
		t.Fatalf("%+v caused %+v", f, e)
	}
	return c, e
}

// accepts has a new responder accept f, and returns it with its Reply.
func accepts(t testing.TB, cfg Config, f wire.StartFrame, p AcceptParam) (*Conn, wire.StartFrame) {
	t.Helper()
	c, _ := receivesRequest(t, cfg, f)
	must.Do(t, c.Accept(p))
	return c, parse(t, written(c))
}

// initiates passes the Reply f to a new initiator, whose Request must be valid.
func initiates(t testing.TB, cfg Config, f wire.StartFrame) (*Conn, Event) {
	t.Helper()
	c := NewInitiator(0, cfg)
	parse(t, written(c))
	return c, giveOne(t, c, f.Append(nil))
}

// accepted is initiates for a Reply that must be accepted.
func accepted(t testing.TB, cfg Config, f wire.StartFrame) *Conn {
	t.Helper()
	c, e := initiates(t, cfg, f)
	if e.Kind != EventAccepted {
		t.Fatalf("%+v caused %+v", f, e)
	}
	return c
}

// closesOn checks that a new responder closes on b, and sends nothing.
func closesOn(t testing.TB, cfg Config, b []byte, want error) {
	t.Helper()
	c := NewResponder(0, cfg)
	closes(t, c, giveOne(t, c, b), want)
}

// closes checks that c closed with code 4 for the given reason.
func closes(t testing.TB, c *Conn, e Event, want error) {
	t.Helper()
	if e.Kind != EventError || e.Term != wire.TermMPAFrame || e.Reaction != CloseNow || e.Err != want {
		t.Errorf("got %+v, want it closed because %v", e, want)
	}
	if b := written(c); len(b) > 0 || c.MaySend() || !over(c) {
		t.Errorf("closed, and sends %x", b)
	}
	if c.Deadline() != mono.Never {
		t.Errorf("closed, and still has a deadline")
	}
}

// pattern returns n octets that depend on their position and on seed.
func pattern(n, seed int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + seed*31 + 1)
	}
	return b
}

// wantULPDU checks that e reports want.
func wantULPDU(t testing.TB, e Event, want []byte) {
	t.Helper()
	if e.Kind != EventULPDU || !bytes.Equal(e.ULPDU, want) {
		t.Errorf("got %v %.40x (%d octets) %v, want %.40x (%d octets)", e.Kind, e.ULPDU, len(e.ULPDU), e.Err, want, len(want))
	}
}

// failsWith checks that e is an error after which a Terminate may be sent.
func failsWith(t testing.TB, e Event, term wire.TermError, why error) {
	t.Helper()
	if e.Kind != EventError || e.Term != term || e.Reaction != TerminateThenClose || e.Err != why {
		t.Errorf("got %+v, want %v and a Terminate: %v", e, term, why)
	}
}

// stream frames ulpdus with the codec.
func stream(f wire.Framing, ulpdus ...[]byte) (b []byte) {
	framer := wire.NewFramer(f)
	for _, u := range ulpdus {
		b = framer.Append(b, u)
	}
	return b
}

// responding returns a responder in full operation that requested framing in, and whose peer
// requested out.
func responding(t testing.TB, cfg Config, in, out wire.Framing) *Conn {
	t.Helper()
	cfg.Markers, cfg.NoCRC = in.Markers, !in.CRC
	f := request()
	f.Markers, f.CRC = out.Markers, out.CRC
	c, _ := accepts(t, cfg, f, AcceptParam{})
	if got := c.Params().In; got != in {
		t.Fatalf("framed %+v, want %+v", got, in)
	}
	return c
}

// sending returns an initiator in full operation whose peer requested f.
func sending(t testing.TB, cfg Config, f wire.Framing) *Conn {
	t.Helper()
	cfg.IRD, cfg.ORD, cfg.NoCRC = notNegotiated, notNegotiated, !f.CRC
	r := reply()
	r.Markers, r.CRC = f.Markers, f.CRC
	c := accepted(t, cfg, r)
	if got := c.Params().Out; got != f {
		t.Fatalf("framed %+v, want %+v", got, f)
	}
	return c
}

// framings has all framings.
var framings = []wire.Framing{{}, {CRC: true}, {Markers: true}, {Markers: true, CRC: true}}

// over reports whether there will be no more events or output.
func over(c *Conn) bool { return c.state == finished && c.out.octets() == 0 }
