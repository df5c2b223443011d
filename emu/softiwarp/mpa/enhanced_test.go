package mpa

import (
	"bytes"
	"testing"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/internal/must"
)

// rfc6581/9.2/8: Without the peer-to-peer model a frame has no RTR flags.
func TestNoRTRFlagsWithoutPeerToPeer(t *testing.T) {
	if e := enhancedData(false, RTRSend|RTRWrite|RTRRead, 1, 2); e != (wire.Enhanced{IRD: 1, ORD: 2}) {
		t.Errorf("%+v", e)
	}
}

// depthsOf returns the enhanced data of a frame, which must have it.
func depthsOf(t *testing.T, f wire.StartFrame) wire.Enhanced {
	t.Helper()
	e, _, ok := f.Split()
	if !ok || f.Revision != 2 {
		t.Fatalf("%+v is not enhanced", f)
	}
	return e
}

// replies returns the enhanced data with which a responder accepts requested.
func replies(t *testing.T, cfg Config, requested wire.Enhanced, p AcceptParam) (*Conn, wire.Enhanced) {
	t.Helper()
	c, f := accepts(t, cfg, enhance(request(), requested), p)
	return c, depthsOf(t, f)
}

// depthRows are about the enhanced frames and the depths in them.
var depthRows = map[string]func(*testing.T){
	"rfc6581/6/1": func(t *testing.T) {
		f := parse(t, written(NewInitiator(0, Config{IRD: 1, ORD: 1})))
		if !f.Enhanced || f.Revision != 2 {
			t.Errorf("Request %+v", f)
		}
	},
	"rfc6581/6/2": func(t *testing.T) {
		c, f := accepts(t, Config{}, request(1, 2, 3, 4, 5), AcceptParam{IRD: 3, ORD: 4})
		if f.Revision != 1 || f.Enhanced || len(f.PrivateData) > 0 {
			t.Errorf("Reply %+v", f)
		}
		if p := c.Params(); p.Enhanced || p.IRD != 3 || p.ORD != 4 {
			t.Errorf("negotiated %+v", p)
		}
	},
	"rfc6581/6/3": func(t *testing.T) {
		cfg := Config{IRD: 1, ORD: 2, PrivateData: []byte("application")}
		f := parse(t, written(NewInitiator(0, cfg)))
		if e, private, _ := f.Split(); e != (wire.Enhanced{IRD: 1, ORD: 2}) || string(private) != "application" {
			t.Errorf("Request %+v, %q", e, private)
		}
		_, e := receivesRequest(t, Config{}, f)
		if string(e.PrivateData) != "application" {
			t.Errorf("the application gets %q", e.PrivateData)
		}
	},
	"rfc6581/6/4": func(t *testing.T) {
		for n := range 4 {
			f := enhance(request(), wire.Enhanced{})
			f.PrivateData = f.PrivateData[:n]
			closesOn(t, Config{}, f.Append(nil), ErrShortEnhanced)
			f.Reply = true
			badReply(t, Config{}, f.Append(nil), ErrShortEnhanced)
		}
	},
	"rfc6581/6/5": func(t *testing.T) {
		f := request(1, 2, 3, 4)
		f.Revision = 2
		c, e := receivesRequest(t, Config{}, f)
		if e.Params.Enhanced || !bytes.Equal(e.PrivateData, []byte{1, 2, 3, 4}) {
			t.Errorf("%+v", e)
		}
		must.Do(t, c.Accept(AcceptParam{}))
		if r := parse(t, written(c)); r.Revision != 2 || r.Enhanced || len(r.PrivateData) > 0 {
			t.Errorf("Reply %+v", r)
		}
	},
	"rfc6581/8/1": func(t *testing.T) {
		_, e := initiates(t, Config{IRD: 1}, enhance(reply(), wire.Enhanced{ORD: 200}))
		if e.Term != (wire.TermError{Layer: 2, Type: 0, Code: 6}) {
			t.Errorf("too many reads: %v", e.Term)
		}
		_, e = initiates(t, Config{PeerToPeer: true, RTR: RTRWrite}, enhance(reply(), wire.Enhanced{PeerToPeer: true, RTRSend: true}))
		if e.Term != (wire.TermError{Layer: 2, Type: 0, Code: 7}) {
			t.Errorf("no RTR: %v", e.Term)
		}
	},
	"rfc6581/9/1": func(t *testing.T) {
		cfg := Config{IRD: 0x1234, ORD: 0x2345, PeerToPeer: true, RTR: RTRSend | RTRWrite}
		f := parse(t, written(NewInitiator(0, cfg)))
		if want := []byte{0xd2, 0x34, 0xa3, 0x45}; !bytes.Equal(f.PrivateData, want) {
			t.Errorf("sends %x, want %x", f.PrivateData, want)
		}
		_, e := receivesRequest(t, Config{}, f)
		if p := e.Params; p.PeerIRD != 0x1234 || p.PeerORD != 0x2345 || !p.PeerToPeer || p.RTR != RTRSend|RTRWrite {
			t.Errorf("understood as %+v", p)
		}
	},
	"rfc6581/9.1/1": func(t *testing.T) {
		_, e := receivesRequest(t, Config{IRD: 77, ORD: 78}, enhance(request(), wire.Enhanced{IRD: 3, ORD: 5}))
		if p := e.Params; !p.Enhanced || p.PeerIRD != 3 || p.PeerORD != 5 {
			t.Errorf("Request %+v", p)
		}
	},
	"rfc6581/9.1/2": func(t *testing.T) {
		c, e := replies(t, Config{}, wire.Enhanced{IRD: 3, ORD: 0}, AcceptParam{ORD: 4})
		if e.ORD != 3 || c.Params().ORD != 3 {
			t.Errorf("Reply %+v, negotiated %+v", e, c.Params())
		}
	},
	"rfc6581/9.1/3": func(t *testing.T) {
		c, e := replies(t, Config{MaxIRD: 128}, wire.Enhanced{ORD: 8}, AcceptParam{IRD: 4})
		if e.IRD != 8 || c.Params().IRD != 8 {
			t.Errorf("Reply %+v, negotiated %+v", e, c.Params())
		}
		c, e = replies(t, Config{MaxIRD: 6}, wire.Enhanced{ORD: 8}, AcceptParam{IRD: 4})
		if e.IRD != 6 || c.Params().IRD != 6 {
			t.Errorf("Reply %+v, negotiated %+v", e, c.Params())
		}
		if _, e = replies(t, Config{}, wire.Enhanced{ORD: 8}, AcceptParam{IRD: 4}); e.IRD != 4 {
			t.Errorf("Reply %+v", e)
		}
		if _, e = replies(t, Config{MaxIRD: 128}, wire.Enhanced{ORD: 2}, AcceptParam{IRD: 4}); e.IRD != 4 {
			t.Errorf("Reply %+v", e)
		}
	},
	"rfc6581/9.1/4": func(t *testing.T) {
		_, e := replies(t, Config{}, wire.Enhanced{PeerToPeer: true, RTRRead: true}, AcceptParam{})
		if e.IRD != 1 || !e.RTRRead {
			t.Errorf("Reply %+v", e)
		}
		if _, e := replies(t, Config{}, wire.Enhanced{PeerToPeer: true, RTRWrite: true}, AcceptParam{}); e.IRD != 0 {
			t.Errorf("Reply %+v", e)
		}
	},
	"rfc6581/9.1/5": func(t *testing.T) {
		c, _ := receivesRequest(t, Config{}, enhance(request(), wire.Enhanced{IRD: 0, ORD: 2}))
		must.Do(t, c.Reject(AcceptParam{IRD: 2, ORD: 4, PrivateData: []byte("more")}))
		f := parse(t, written(c))
		if e, private, ok := f.Split(); !ok || !f.Reject || e.ORD != 4 || e.IRD != 2 || string(private) != "more" {
			t.Errorf("Reply %+v, %+v", f, e)
		}
		if _, e := replies(t, Config{}, wire.Enhanced{IRD: 0, ORD: 2}, AcceptParam{ORD: 4}); e.ORD != 0 {
			t.Errorf("accepts with %+v", e)
		}
	},
	"rfc6581/9.1/6": func(t *testing.T) {
		c := accepted(t, Config{IRD: 4, ORD: 8, MaxIRD: 16}, enhance(reply(), wire.Enhanced{IRD: 1, ORD: 9}))
		if p := c.Params(); p.ORD != 1 || p.IRD != 9 || p.PeerIRD != 1 || p.PeerORD != 9 {
			t.Errorf("negotiated %+v", p)
		}
		c = accepted(t, Config{IRD: 4, ORD: 8}, enhance(reply(), wire.Enhanced{IRD: 100, ORD: 3}))
		if p := c.Params(); p.ORD != 8 || p.IRD != 4 {
			t.Errorf("negotiated %+v", p)
		}
	},
	"rfc6581/9.1/7": func(t *testing.T) {
		for _, f := range framings {
			r := enhance(reply(), wire.Enhanced{ORD: 200})
			r.Markers, r.CRC = f.Markers, f.CRC
			c, e := initiates(t, Config{IRD: 4, MaxIRD: 128, NoCRC: true}, r)
			failsWith(t, e, wire.TermMPANotEnoughReads, ErrIRD)
			if b := sent(c, pattern(22, 0)); !bytes.Equal(b, stream(f, pattern(22, 0))) || c.MaySend() {
				t.Errorf("%+v: the Terminate is %x", f, b)
			}
			if es := give(c, stream(f, pattern(18, 0))); len(es) > 0 {
				t.Errorf("%+v: continues with %+v", f, es)
			}
		}
	},
	"rfc6581/9.1/8": func(t *testing.T) {
		for _, reject := range []bool{false, true} {
			f := enhance(reply([]byte("why")...), wire.Enhanced{IRD: 6, ORD: 2})
			f.Reject = reject
			_, e := initiates(t, Config{IRD: 2, ORD: 9}, f)
			if e.Params == nil || e.Params.PeerIRD != 6 || e.Params.PeerORD != 2 || !e.Params.Enhanced || string(e.PrivateData) != "why" {
				t.Errorf("rejected %v: %+v", reject, e)
			}
		}
	},
	"rfc6581/9.1/9": func(t *testing.T) {
		c, e := replies(t, Config{MaxIRD: 128}, wire.Enhanced{IRD: 5, ORD: notNegotiated}, AcceptParam{IRD: 7, ORD: 7})
		if p := c.Params(); e.IRD != notNegotiated || e.ORD != 5 || p.IRD != 7 || p.ORD != 5 {
			t.Errorf("Reply %+v, negotiated %+v", e, p)
		}
		c, e = replies(t, Config{MaxIRD: 128}, wire.Enhanced{IRD: notNegotiated, ORD: 9}, AcceptParam{IRD: 7, ORD: 7})
		if p := c.Params(); e.ORD != notNegotiated || e.IRD != 9 || p.IRD != 9 || p.ORD != 7 {
			t.Errorf("Reply %+v, negotiated %+v", e, p)
		}
	},
	"rfc6581/9.1/10": func(t *testing.T) {
		c := accepted(t, Config{IRD: 3, ORD: 4}, enhance(reply(), wire.Enhanced{IRD: notNegotiated, ORD: notNegotiated}))
		if p := c.Params(); p.IRD != 3 || p.ORD != 4 {
			t.Errorf("negotiated %+v", p)
		}
	},
	"rfc6581/10/1": func(t *testing.T) {
		replies(t, Config{}, wire.Enhanced{IRD: notNegotiated, ORD: notNegotiated}, AcceptParam{})
		if _, f := accepts(t, Config{}, request(), AcceptParam{}); f.Enhanced || f.Revision != 1 || len(f.PrivateData) > 0 {
			t.Errorf("Reply %+v", f)
		}
		f := reply() // the initiator requires it
		badReply(t, Config{}, f.Append(nil), ErrNotEnhanced)
		f = enhance(reply(), wire.Enhanced{})
		badReply(t, plainConfig(), f.Append(nil), ErrEnhanced)
	},
	"rfc6581/10/2": func(t *testing.T) {
		if f := parse(t, written(NewInitiator(0, plainConfig()))); f.Enhanced || f.Revision != 1 || len(f.PrivateData) > 0 {
			t.Errorf("Request %+v", f)
		}
		if f := parse(t, written(NewInitiator(0, Config{MaxRevision: 1, IRD: 4, ORD: 4}))); f.Enhanced || f.Revision != 1 {
			t.Errorf("Request %+v", f)
		}
	},
	"rfc6581/10/3": func(t *testing.T) {
		for _, gone := range []func(*Conn){
			func(c *Conn) { c.InputEOF() },
			func(c *Conn) { c.Lost() },
			func(c *Conn) { f := reply(); c.Input(0, f.Append(nil)) },
		} {
			c := NewInitiator(0, Config{IRD: 1, ORD: 1})
			gone(c)
			if e := one(t, drain(c)); !e.Fallback || e.Reaction != CloseNow {
				t.Errorf("%+v", e)
			}
			c = NewInitiator(0, Config{IRD: 1, ORD: 1, MaxRevision: 1}) // the second attempt
			gone(c)
			if e := one(t, drain(c)); e.Fallback {
				t.Errorf("%+v: advises to try what was tried", e)
			}
		}
		for _, err := range []func(*Conn) []Event{
			func(c *Conn) []Event { return give(c, []byte("HTTP/1.1 400")) },
			func(c *Conn) []Event { c.Tick(c.Deadline()); return drain(c) },
		} {
			if e := one(t, err(NewInitiator(0, Config{}))); e.Fallback {
				t.Errorf("%+v: advises to try again in vain", e)
			}
		}
	},
	"rfc6581/12/1": func(t *testing.T) {
		for _, depth := range []uint16{0, 1, 128, 129, 0x3ffe, 0x3fff} {
			for flags := range 16 {
				requested := wire.Enhanced{
					PeerToPeer: flags&8 != 0, RTRSend: flags&4 != 0, RTRWrite: flags&2 != 0, RTRRead: flags&1 != 0,
					IRD: depth, ORD: depth,
				}
				c, e := replies(t, Config{MaxIRD: 128}, requested, AcceptParam{IRD: 16, ORD: 16})
				p := c.Params()
				if p.IRD > 128 || p.ORD > 16 || p.IRD < 16 || e.PeerToPeer != requested.PeerToPeer || e.PeerToPeer != (rtrOf(&e) != 0) {
					t.Errorf("%+v: Reply %+v, negotiated %+v", requested, e, p)
				}
			}
		}
	},
}
