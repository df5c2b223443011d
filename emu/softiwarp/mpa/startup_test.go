package mpa

import (
	"bytes"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
)

// endsAt checks that c closes at the given time and not before.
func endsAt(t *testing.T, c *Conn, at mono.Time) {
	t.Helper()
	if c.Deadline() != at {
		t.Fatalf("deadline %v, want %v", c.Deadline(), at)
	}
	c.Tick(at - 1)
	if es := drain(c); len(es) > 0 {
		t.Fatalf("too early: %+v", es)
	}
	c.Tick(at)
	if e := one(t, drain(c)); e.Kind != EventTimeout || e.Reaction != CloseNow || e.Err != ErrTimeout {
		t.Errorf("got %+v", e)
	}
	if c.Deadline() != mono.Never || len(written(c)) > 0 || !over(c) {
		t.Error("it continues")
	}
}

// startRows test the order of start-up frames and FPDUs.
var startRows = map[string]func(*testing.T){
	"rfc5044/7.1.2/1": func(t *testing.T) {
		c := NewInitiator(0, Config{})
		if f := parse(t, written(c)); f.Reply || c.MaySend() || c.Room() {
			t.Errorf("begins with %+v", f)
		}
	},
	"rfc5044/7.1.2/2": func(t *testing.T) {
		c := NewResponder(0, Config{})
		f := request()
		for _, octet := range f.Append(nil) {
			if b := written(c); len(b) > 0 || c.MaySend() {
				t.Fatalf("sends %x", b)
			}
			give(c, []byte{octet})
		}
		if b := written(c); len(b) > 0 || c.MaySend() { // before the application accepts
			t.Errorf("sends %x", b)
		}
	},
	"rfc5044/7.1.2/3": func(t *testing.T) {
		f := request(1, 2, 3)
		b := f.Append(nil)
		for n := 1; n < len(b); n++ { // truncated
			c := NewResponder(0, Config{})
			if es := give(c, b[:n]); len(es) > 0 {
				t.Fatalf("%d octets: %+v", n, es)
			}
			c.InputEOF()
			closes(t, c, one(t, drain(c)), ErrTruncatedFrame)
		}
		f = enhance(request(), wire.Enhanced{})
		f.PrivateData = f.PrivateData[:3]
		closesOn(t, Config{}, f.Append(nil), ErrShortEnhanced)
		f = reply()
		closesOn(t, Config{}, f.Append(nil), ErrUnasked)
	},
	"rfc5044/7.1.2/4": func(t *testing.T) {
		c, _ := receivesRequest(t, Config{}, request())
		must.Do(t, c.Reject(AcceptParam{PrivateData: pattern(512, 0)}))
		if f := parse(t, written(c)); !f.Reject || !bytes.Equal(f.PrivateData, pattern(512, 0)) {
			t.Errorf("Reply %+v", f)
		}
	},
	"rfc5044/7.1.2/5": func(t *testing.T) {
		c, _ := receivesRequest(t, Config{}, request())
		if err := c.Reject(AcceptParam{}); err != nil || over(c) {
			t.Fatalf("%v, over before the Reply is written: %v", err, over(c))
		}
		written(c)
		if es := give(c, stream(crcOn, pattern(18, 0))); len(es) > 0 || c.MaySend() || c.Room() || !over(c) {
			t.Errorf("after a rejection: %+v", es)
		}
		must.Fail(t, "accepted what was rejected", c.Accept(AcceptParam{}), ErrState)
	},
	"rfc5044/7.1.2/6": func(t *testing.T) {
		c, _ := receivesRequest(t, Config{}, request())
		must.Do(t, c.Accept(AcceptParam{}))
		// The Reply is sent, and TCP has not yet reported that: the FPDU that arrives with its
		// acknowledgement is accepted.
		vs := c.Output(nil)
		wantULPDU(t, giveOne(t, c, stream(crcOn, pattern(18, 0))), pattern(18, 0))
		if again := c.Output(nil); !bytes.Equal(bytes.Join(vs, nil), bytes.Join(again, nil)) {
			t.Error("the Reply has changed")
		}
	},
	"rfc5044/7.1.2/7": func(t *testing.T) {
		badReply(t, plainConfig(), edited(reply(), 17, 3), ErrRevision)
		f := reply(1, 2, 3)
		b := f.Append(nil)
		for n := 1; n < len(b); n++ {
			c := NewInitiator(0, plainConfig())
			give(c, b[:n])
			c.InputEOF()
			if e := one(t, drain(c)); e.Fallback {
				t.Error("advises to fall back from revision 1")
			} else {
				closes(t, c, e, ErrTruncatedFrame)
			}
		}
	},
	"rfc5044/7.1.2/8": func(t *testing.T) {
		f := reply(pattern(99, 0)...)
		f.Reject = true
		c, e := initiates(t, plainConfig(), f)
		if e.Kind != EventRejected || e.Reaction != CloseNow || !bytes.Equal(e.PrivateData, pattern(99, 0)) {
			t.Errorf("got %+v", e)
		}
		if es := give(c, stream(crcOn, pattern(18, 0))); len(es) > 0 || c.MaySend() || !over(c) {
			t.Errorf("after a rejection: %+v", es)
		}
	},
	"rfc5044/7.1.2/9": func(t *testing.T) {
		f := request()
		f.Markers = true // a marker would be due now
		c, _ := accepts(t, Config{}, f, AcceptParam{})
		b := stream(crcOn, pattern(18, 0))
		for _, octet := range b {
			if c.MaySend() || c.Room() || len(written(c)) > 0 {
				t.Fatal("may send before the first FPDU")
			}
			give(c, []byte{octet})
		}
		if !c.MaySend() || !c.Room() {
			t.Error("cannot send after the first FPDU")
		}
		c, _ = accepts(t, Config{}, f, AcceptParam{})
		b[3] ^= 1 // a wrong octet is the only error
		failsWith(t, giveOne(t, c, b), wire.TermMPACRC, ErrCRC)
		if c.Send(pattern(22, 0), nil); c.MaySend() {
			t.Error("may send after the Terminate")
		}
	},
	"rfc5044/7.1.2/10": func(t *testing.T) {
		for _, f := range framings {
			c := sending(t, Config{}, f)
			want := []byte{0, 18}
			if f.Markers {
				want = []byte{0, 0, 0, 0, 0, 18}
			}
			if b := sent(c, pattern(18, 0)); !bytes.HasPrefix(b, want) {
				t.Errorf("%+v: begins with %x", f, b)
			}
		}
	},
	"rfc5044/7.1.2/11": func(t *testing.T) {
		a, b := NewInitiator(0, Config{}), NewInitiator(0, Config{})
		toB, toA := written(a), written(b)
		closes(t, a, giveOne(t, a, toA), ErrTwoInitiators)
		closes(t, b, giveOne(t, b, toB), ErrTwoInitiators)
	},
	"rfc5044/7.1.2/12": func(t *testing.T) {
		endsAt(t, NewResponder(100, Config{}), mono.Time(100).Add(5*time.Second))
		endsAt(t, NewResponder(100, Config{RequestTimeout: time.Minute}), mono.Time(100).Add(time.Minute))
		if c := NewResponder(100, Config{RequestTimeout: -1}); c.Deadline() != mono.Never {
			t.Errorf("waits until %v", c.Deadline())
		}
		c, _ := receivesRequest(t, Config{}, request())
		if c.Deadline() != mono.Never {
			t.Error("the application has a deadline")
		}
	},
	"rfc5044/7.1.2/13": func(t *testing.T) {
		c := NewResponder(7, Config{})
		f := request(1, 2, 3)
		b := f.Append(nil)
		for i, octet := range b[:len(b)-1] {
			c.Input(mono.Time(i)*mono.Time(time.Second)/10, []byte{octet})
			drain(c)
		}
		endsAt(t, c, mono.Time(7).Add(5*time.Second))
		c = NewInitiator(7, plainConfig())
		f = reply(1, 2, 3)
		b = f.Append(nil)
		give(c, b[:len(b)-1])
		endsAt(t, c, mono.Time(7).Add(10*time.Second))
		endsAt(t, NewInitiator(7, Config{ReplyTimeout: time.Second}), mono.Time(7).Add(time.Second))
	},
	"rfc5044/7.1.2/14": func(t *testing.T) {
		f := request(1, 2, 3)
		b := f.Append(nil)
		closesOn(t, Config{}, append(b, 9), ErrEarlyOctets)
		c, _ := receivesRequest(t, Config{}, f) // the same if they arrive later
		closes(t, c, giveOne(t, c, []byte{9}), ErrEarlyOctets)
		must.Fail(t, "accepted what has failed", c.Accept(AcceptParam{}), ErrState)
		// Octets after a Reply are an FPDU, also if they arrive together.
		r := reply(1, 2, 3)
		es := give(NewInitiator(0, plainConfig()), append(r.Append(nil), stream(crcOn, pattern(18, 0))...))
		if len(es) != 2 || es[0].Kind != EventAccepted || !bytes.Equal(es[0].PrivateData, []byte{1, 2, 3}) {
			t.Fatalf("%+v", es)
		}
		wantULPDU(t, es[1], pattern(18, 0))
	},
}

func TestTooLongPrivateDataIsRejected(t *testing.T) {
	cfg := Config{PrivateData: make([]byte, 509)}
	must.Fail(t, "509 octets after enhanced data", cfg.Validate(), ErrPrivateData)
	cfg = plainConfig()
	cfg.PrivateData = make([]byte, 512)
	if err := cfg.Validate(); err != nil {
		t.Errorf("512 octets: %v", err)
	}
	c, _ := receivesRequest(t, Config{}, request())
	must.Fail(t, "Accept with 513", c.Accept(AcceptParam{PrivateData: make([]byte, 513)}), ErrPrivateData)
	must.Fail(t, "Reject with 513", c.Reject(AcceptParam{PrivateData: make([]byte, 513)}), ErrPrivateData)
	if err := c.Accept(AcceptParam{}); err != nil {
		t.Errorf("after that: %v", err)
	}
	must.Fail(t, "Accept before any Request", NewResponder(0, Config{}).Accept(AcceptParam{}), ErrState)
}

func TestInvalidConfigsAreRejected(t *testing.T) {
	for _, cfg := range []Config{
		{MaxRevision: 3},
		{MaxRevision: 1, PeerToPeer: true},
		{IRD: 0x4000},
		{ORD: 0x4000},
		{MaxIRD: 0x4000},
		{RTR: 8},
	} {
		if cfg.Validate() == nil {
			t.Errorf("%+v", cfg)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v makes a connection", cfg)
				}
			}()
			NewInitiator(0, cfg)
		}()
	}
	if err := (&Config{MaxRevision: 2}).Validate(); err != nil {
		t.Errorf("MaxRevision 2: %v", err)
	}
}
