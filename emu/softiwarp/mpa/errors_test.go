package mpa

import (
	"bytes"
	"testing"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/internal/must"
)

// errorRows are about what ends a connection.
var errorRows = map[string]func(*testing.T){
	"rfc5044/7.2/1": func(t *testing.T) {
		c := responding(t, Config{}, crcOn, crcOn)
		c.Input(0, stream(crcOn, pattern(18, 0)))
		c.InputEOF() // reported after the earlier input
		es := drain(c)
		if len(es) != 2 || es[1].Kind != EventEOF || es[1].Reaction != GoOn || es[1].Term != wire.TermMPAClosed {
			t.Fatalf("%+v", es)
		}
		if c.InputEOF(); len(drain(c)) > 0 {
			t.Error("EOF is reported twice")
		}
		if b := sent(c, pattern(18, 1)); !bytes.Equal(b, stream(crcOn, pattern(18, 1))) {
			t.Error("the other half has ended too")
		}
	},
	"rfc5044/8/1": func(t *testing.T) {
		for name, at := range map[string]func() *Conn{
			"waiting for the Request": func() *Conn { return NewResponder(0, Config{}) },
			"waiting for the Reply":   func() *Conn { return NewInitiator(0, plainConfig()) },
			"in full operation":       func() *Conn { return responding(t, Config{}, crcOn, crcOn) },
			"waiting for Accept":      func() *Conn { c, _ := receivesRequest(t, Config{}, request()); return c },
		} {
			c := at()
			c.Lost()
			if e := one(t, drain(c)); e.Kind != EventError || e.Term != wire.TermMPAClosed || e.Reaction != CloseNow || e.Err != ErrLost {
				t.Errorf("reset while %s: %+v", name, e)
			}
			if !over(c) || c.MaySend() {
				t.Errorf("reset while %s: it continues", name)
			}
			c = at()
			c.InputEOF()
			if e := one(t, drain(c)); e.Kind != EventEOF || e.Term != wire.TermMPAClosed || e.Err != ErrEOF {
				t.Errorf("FIN while %s: %+v", name, e)
			}
		}
		c := responding(t, Config{}, crcOn, crcOn) // within an FPDU
		give(c, stream(crcOn, pattern(18, 0))[:7])
		c.InputEOF()
		failsWith(t, one(t, drain(c)), wire.TermMPAClosed, ErrTruncatedFPDU)

		b := stream(crcOn, pattern(18, 0))
		b[9] ^= 0x40
		failsWith(t, giveOne(t, responding(t, Config{}, crcOn, crcOn), b), wire.TermMPACRC, ErrCRC)
		c = responding(t, Config{}, marked1, crcOn)
		failsWith(t, giveOne(t, c, corrupt(514, []byte{0, 4}, pattern(700, 0))), wire.TermMPAMarker, ErrMarker)
		closesOn(t, Config{}, []byte("GET / HTTP/1.1\r\n"), ErrNoMPA)
	},
	"rfc5044/8/2": func(t *testing.T) {
		c := responding(t, Config{}, crcOn, crcOn)
		b := stream(crcOn, pattern(18, 0))
		b[9] ^= 0x40
		for i := range 400 {
			b = append(b, stream(crcOn, pattern(18, i))...)
		}
		failsWith(t, giveOne(t, c, b), wire.TermMPACRC, ErrCRC)
		if es := give(c, stream(crcOn, pattern(18, 1))); len(es) > 0 {
			t.Errorf("%+v after the error", es)
		}
		c.InputEOF()
		if es := drain(c); len(es) > 0 {
			t.Errorf("%+v after the error", es)
		}
	},
	"rfc5044/8/3": func(t *testing.T) {
		c := responding(t, Config{}, crcOn, crcOn)
		giveOne(t, c, stream(crcOn, pattern(18, 0)))
		c.Send(pattern(18, 1), nil) // queued before the error, and still sent
		b := stream(crcOn, pattern(18, 0))
		b[9] ^= 0x40
		failsWith(t, giveOne(t, c, b), wire.TermMPACRC, ErrCRC)
		if !c.MaySend() || !c.Room() || over(c) {
			t.Fatal("no chance for a Terminate")
		}
		c.Send(pattern(22, 2), nil)
		if c.MaySend() || c.Room() || over(c) {
			t.Error("a chance for two, or it is over before the first was written")
		}
		if got := written(c); !bytes.Equal(got, stream(crcOn, pattern(18, 1), pattern(22, 2))) || !over(c) {
			t.Errorf("wrote %x, over: %v", got, over(c))
		}
	},
	"rfc5044/8/4": func(t *testing.T) {
		f := request()
		f.Revision = 9
		closesOn(t, Config{}, f.Append(nil), ErrRevision)
	},
	"rfc5044/8/5": func(t *testing.T) {
		for _, delta := range []byte{4, 8, 0x80} {
			for _, at := range []int{2, 514, 1026} { // with a valid CRC, any marker
				c := responding(t, Config{}, marked1, crcOn)
				failsWith(t, giveOne(t, c, corrupt(at, []byte{0, delta}, pattern(1300, 0))), wire.TermMPAMarker, ErrMarker)
			}
		}
		b := stream(marked1, pattern(700, 0)) // with a wrong CRC, the CRC is the error
		b[515] ^= 4
		failsWith(t, giveOne(t, responding(t, Config{}, marked1, crcOn), b), wire.TermMPACRC, ErrCRC)
		none := wire.Framing{Markers: true} // without a CRC, markers are still checked
		b = stream(none, pattern(700, 0))
		b[515] ^= 4
		failsWith(t, giveOne(t, responding(t, Config{}, none, wire.Framing{}), b), wire.TermMPAMarker, ErrMarker)
	},
	"rfc5044/C.1/1": func(t *testing.T) { // DDP versions follow the revision, which is reported
		for _, revision := range []uint8{1, 2} {
			f := request()
			f.Revision = revision
			if c, _ := accepts(t, Config{}, f, AcceptParam{}); c.Params().Revision != revision {
				t.Errorf("Request of revision %d: %+v", revision, c.Params())
			}
		}
		f := request()
		f.Revision, f.CRC = 0, false
		c, r := accepts(t, Config{Consortium: true, NoCRC: true}, f, AcceptParam{})
		if p := c.Params(); r.Revision != 0 || !r.Markers || !r.CRC || p.In != marked1 || p.Out != marked1 || p.Revision != 0 {
			t.Errorf("Request of revision 0: %+v, %+v", r, p)
		}
		cfg := plainConfig()
		cfg.Consortium, cfg.NoCRC = true, true
		r = reply()
		r.Revision, r.CRC = 0, false
		if p := accepted(t, cfg, r).Params(); p.In != marked1 || p.Out != marked1 || p.Revision != 0 {
			t.Errorf("Reply of revision 0: %+v", p)
		}
	},
}

// TestResetDiscardsOutput resets the stream while output is queued.
func TestResetDiscardsOutput(t *testing.T) {
	refused, _ := receivesRequest(t, Config{}, request())
	must.Do(t, refused.Reject(AcceptParam{}))
	failed := responding(t, Config{}, crcOn, crcOn)
	b := stream(crcOn, pattern(18, 0))
	b[9] ^= 0x40
	giveOne(t, failed, b)
	for _, c := range []*Conn{refused, failed} {
		c.Lost()
		if es := drain(c); len(es) > 0 || len(written(c)) > 0 || c.MaySend() || !over(c) {
			t.Errorf("%+v after the end", es)
		}
		if n := c.Sent(10); n != 0 { // TCP may have accepted a part before
			t.Errorf("%d ULPDUs sent", n)
		}
	}
}
