package mpa

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/internal/must"
)

// edited returns a frame with octets changed.
func edited(f wire.StartFrame, at int, octets ...byte) []byte {
	b := f.Append(nil)
	copy(b[at:], octets)
	return b
}

// pdLength returns a frame that claims n octets of private data, and has at most 512 of them.
func pdLength(f wire.StartFrame, n int) []byte {
	f.PrivateData = pattern(min(n, 512), 0)
	b := f.Append(nil)
	binary.BigEndian.PutUint16(b[18:], uint16(n))
	return b
}

// badReply passes b to an initiator, which must close.
func badReply(t *testing.T, cfg Config, b []byte, want error) {
	t.Helper()
	c := NewInitiator(0, cfg)
	written(c)
	closes(t, c, giveOne(t, c, b), want)
}

// frameRows test each field of the start-up frames.
var frameRows = map[string]func(*testing.T){
	"rfc5044/7.1.1/1": func(t *testing.T) {
		if b := written(NewInitiator(0, Config{})); !bytes.HasPrefix(b, []byte("MPA ID Req Frame")) {
			t.Errorf("Request %q", b)
		}
	},
	"rfc5044/7.1.1/2": func(t *testing.T) {
		closesOn(t, Config{}, edited(request(), 0, []byte("MPA ID Xeq Frame")...), ErrNoMPA)
		for i := range wire.RequestKey { // any wrong octet, without waiting for the others
			b := edited(request(), i, 0xff)
			closesOn(t, Config{}, b, ErrNoMPA)
			closesOn(t, Config{}, b[:i+1], ErrNoMPA)
		}
	},
	"rfc5044/7.1.1/3": func(t *testing.T) {
		c, _ := receivesRequest(t, Config{}, request())
		must.Do(t, c.Accept(AcceptParam{}))
		if b := written(c); !bytes.HasPrefix(b, []byte("MPA ID Rep Frame")) {
			t.Errorf("Reply %q", b)
		}
	},
	"rfc5044/7.1.1/4": func(t *testing.T) {
		for i := range wire.ReplyKey {
			badReply(t, plainConfig(), edited(reply(), i, 0xff), ErrNoMPA)
		}
		f := request()
		badReply(t, plainConfig(), f.Append(nil), ErrTwoInitiators)
	},
	"rfc5044/7.1.1/5": func(t *testing.T) {
		cfg := plainConfig()
		cfg.Markers = true // in FPDUs that it receives
		c := accepted(t, cfg, reply())
		if b := sent(c, pattern(600, 0)); !bytes.Equal(b, stream(crcOn, pattern(600, 0))) {
			t.Errorf("sends %.40x", b)
		}
		wantULPDU(t, giveOne(t, c, stream(marked1, pattern(600, 0))), pattern(600, 0))
	},
	"rfc5044/7.1.1/6": func(t *testing.T) {
		f := reply()
		f.Markers = true
		c := accepted(t, plainConfig(), f)
		if b := sent(c, pattern(600, 0)); !bytes.Equal(b, stream(marked1, pattern(600, 0))) {
			t.Errorf("sends %.40x", b)
		}
		wantULPDU(t, giveOne(t, c, stream(crcOn, pattern(600, 0))), pattern(600, 0))
	},
	"rfc5044/7.1.1/7": func(t *testing.T) {
		for _, ours := range []bool{false, true} {
			for _, theirs := range []bool{false, true} {
				want := wire.Framing{CRC: ours || theirs}
				f := request()
				f.CRC = theirs
				c, _ := accepts(t, Config{NoCRC: !ours}, f, AcceptParam{})
				if p := c.Params(); p.In != want || p.Out != want {
					t.Errorf("responder %v, Request %v: %+v %+v", ours, theirs, p.In, p.Out)
				}
				r, cfg := reply(), plainConfig()
				r.CRC, cfg.NoCRC = theirs, !ours
				c = accepted(t, cfg, r)
				if p := c.Params(); p.In != want || p.Out != want {
					t.Errorf("initiator %v, Reply %v: %+v %+v", ours, theirs, p.In, p.Out)
				}
			}
		}
	},
	"rfc5044/7.1.1/8": func(t *testing.T) {
		f := request()
		f.Reject = true
		c, r := accepts(t, Config{}, f, AcceptParam{})
		if r.Reject {
			t.Errorf("Reply %+v", r)
		}
		wantULPDU(t, giveOne(t, c, stream(crcOn, pattern(18, 0))), pattern(18, 0))
		c, _ = receivesRequest(t, Config{}, request())
		must.Do(t, c.Reject(AcceptParam{}))
		if r := parse(t, written(c)); !r.Reject {
			t.Errorf("Reply %+v", r)
		}
		f = reply()
		f.Reject = true
		if _, e := initiates(t, plainConfig(), f); e.Kind != EventRejected {
			t.Errorf("%+v", e)
		}
	},
	"rfc5044/7.1.1/9": func(t *testing.T) {
		if f := parse(t, written(NewInitiator(0, Config{}))); f.Reserved != 0 {
			t.Errorf("Request %+v", f)
		}
		f := request()
		f.Reserved = 0xf
		if _, r := accepts(t, Config{}, f, AcceptParam{}); r.Reserved != 0 {
			t.Errorf("Reply %+v", r)
		}
	},
	"rfc5044/7.1.1/10": func(t *testing.T) {
		for reserved := range uint8(16) {
			f := request()
			f.Reserved, f.Enhanced = reserved, reserved&1 != 0 // which revision 1 does not define
			receivesRequest(t, Config{}, f)
			r := reply()
			r.Reserved, r.Enhanced = reserved, reserved&1 != 0
			accepted(t, plainConfig(), r)
		}
	},
	"rfc5044/7.1.1/11": func(t *testing.T) {
		for _, revision := range []byte{0, 3, 4, 127, 128, 255} {
			closesOn(t, Config{}, edited(request(), 17, revision), ErrRevision)
			badReply(t, plainConfig(), edited(reply(), 17, revision), ErrRevision)
		}
		closesOn(t, Config{MaxRevision: 1}, edited(request(), 17, 2), ErrRevision)
	},
	"rfc5044/7.1.1/12": func(t *testing.T) {
		for _, n := range []int{0, 1, 251, 252, 255, 256, 300, 508} {
			for _, enhanced := range []bool{false, true} {
				cfg, r, extra := plainConfig(), request(), 0
				if enhanced {
					cfg.IRD, extra = 1, wire.EnhancedLen
					r = enhance(r, wire.Enhanced{IRD: 1, ORD: 1})
				}
				cfg.PrivateData = pattern(n, 1)
				if f := parse(t, written(NewInitiator(0, cfg))); !bytes.Equal(f.PrivateData[extra:], pattern(n, 1)) {
					t.Errorf("Request with %d octets has %d", n, len(f.PrivateData))
				}
				if _, f := accepts(t, Config{}, r, AcceptParam{PrivateData: pattern(n, 2)}); !bytes.Equal(f.PrivateData[extra:], pattern(n, 2)) {
					t.Errorf("Reply with %d octets has %d", n, len(f.PrivateData))
				}
			}
		}
	},
	"rfc5044/7.1.1/13": func(t *testing.T) {
		for _, n := range []int{513, 514, 1024, 65535} {
			closesOn(t, Config{}, pdLength(request(), n)[:20], ErrLongPrivateData) // at once
			closesOn(t, Config{}, pdLength(request(), n), ErrLongPrivateData)
			badReply(t, plainConfig(), pdLength(reply(), n), ErrLongPrivateData)
		}
	},
	"rfc5044/7.1.1/14": func(t *testing.T) {
		for _, n := range []int{0, 1, 256, 257, 511, 512} {
			c := NewResponder(0, Config{})
			if e := giveOne(t, c, pdLength(request(), n)); e.Kind != EventRequest || !bytes.Equal(e.PrivateData, pattern(n, 0)) {
				t.Errorf("Request with %d octets: %v, %d octets", n, e.Kind, len(e.PrivateData))
			}
			c = NewInitiator(0, plainConfig())
			if e := giveOne(t, c, pdLength(reply(), n)); e.Kind != EventAccepted || !bytes.Equal(e.PrivateData, pattern(n, 0)) {
				t.Errorf("Reply with %d octets: %v, %d octets", n, e.Kind, len(e.PrivateData))
			}
		}
	},
}
