package mpa

import (
	"bytes"
	"testing"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/internal/must"
)

// mulpdus checks MULPDU for each MSS.
func mulpdus(t *testing.T, f wire.Framing, want map[int]int) {
	t.Helper()
	c := sending(t, Config{}, f)
	for mss, n := range want {
		if c.SetMSS(mss); c.MULPDU() != n {
			t.Errorf("MSS %d: MULPDU %d, want %d", mss, c.MULPDU(), n)
		}
		if c := sending(t, Config{MSS: mss}, f); c.MULPDU() != n {
			t.Errorf("MSS %d configured: MULPDU %d, want %d", mss, c.MULPDU(), n)
		}
	}
}

var streamRows = map[string]func(*testing.T){
	"rfc5044/4.5/1": func(t *testing.T) {
		mulpdus(t, crcOn, map[int]int{1448: 1442, 1449: 1442, 1450: 1442, 1451: 1442, 1460: 1454, 8948: 8942})
	},
	"rfc5044/4.5/2": func(t *testing.T) {
		mulpdus(t, marked1, map[int]int{1448: 1430, 1460: 1442, 512: 502})
	},
	"rfc5044/4.5/3": func(t *testing.T) {
		mulpdus(t, crcOn, map[int]int{88: 128, 0: 1442, 133: 128})
		mulpdus(t, marked1, map[int]int{88: 128, 1: 128})
	},
	"rfc5044/5.1/1": func(t *testing.T) {
		for _, f := range framings { // long FPDUs align by filling their segment
			c := sending(t, Config{}, f)
			if b := sent(c, nil, make([]byte, c.MULPDU())); len(b) != 1448 {
				t.Errorf("%+v: an FPDU of full length has %d octets", f, len(b))
			}
		}
		c := sending(t, Config{Align: true}, crcOn) // others because Output returns them one by one
		var want []byte
		for i, n := range []int{3, 900, 0, 1000, 1} {
			u := pattern(18+n, i)
			c.Send(u[:18], [][]byte{u[18:]})
			want = append(want, u...)
		}
		var got []byte
		for range 5 {
			vs := bytes.Join(c.Output(nil), nil)
			if _, rest, ok := wire.NewDeframer(crcOn).Next(vs); !ok || len(rest) > 0 {
				t.Errorf("%d octets to write are not one FPDU", len(vs))
			}
			got = append(got, vs[2:2+int(vs[0])<<8+int(vs[1])]...)
			if n := c.Sent(5); n != 0 { // TCP is full: the rest of the FPDU is next
				t.Errorf("%d ULPDUs after five octets", n)
			}
			if rest := bytes.Join(c.Output(nil), nil); !bytes.Equal(rest, vs[5:]) {
				t.Errorf("%x after five octets of %x", rest, vs)
			}
			if n := c.Sent(len(vs) - 5); n != 1 {
				t.Errorf("%d ULPDUs sent", n)
			}
		}
		if !bytes.Equal(got, want) {
			t.Errorf("sent %x, want %x", got, want)
		}
	},
	"rfc5044/5.1/2": func(t *testing.T) {
		c := responding(t, Config{}, crcOn, crcOn)
		for i, e := range give(c, stream(crcOn, pattern(18, 0), pattern(500, 1), pattern(30, 2))) {
			wantULPDU(t, e, pattern([]int{18, 500, 30}[i], i))
		}
	},
	"rfc5044/5.1/3": func(t *testing.T) {
		for _, f := range framings {
			c := responding(t, Config{}, f, f)
			u := [][]byte{pattern(19, 0), pattern(1001, 1), pattern(14, 2)}
			var es []Event
			for _, octet := range stream(f, u...) {
				es = append(es, give(c, []byte{octet})...)
			}
			if len(es) != len(u) {
				t.Fatalf("%+v: %d events", f, len(es))
			}
			for i := range u {
				wantULPDU(t, es[i], u[i])
			}
		}
	},
	"rfc5044/5.2/1": func(t *testing.T) {
		c := responding(t, Config{}, crcOn, crcOn)
		b := stream(crcOn, pattern(100, 0), pattern(200, 1), pattern(300, 2))
		var es []Event
		for _, piece := range [][]byte{b[:250], b[250:400], b[400:401], b[401:]} {
			es = append(es, give(c, piece)...)
		}
		for i, e := range es {
			wantULPDU(t, e, pattern(100*(i+1), i))
		}
		if len(es) != 3 {
			t.Errorf("%d events", len(es))
		}
	},
	"rfc5044/6/1": func(t *testing.T) {
		c := responding(t, Config{}, crcOn, crcOn)
		b := stream(crcOn, pattern(100, 0))
		b[50] ^= 1
		failsWith(t, giveOne(t, c, b), wire.TermMPACRC, ErrCRC) // and no ULPDU before it
	},
	"rfc5044/6/2": func(t *testing.T) {
		for _, f := range framings {
			c := responding(t, Config{}, f, f)
			b := stream(f, pattern(1400, 0))
			if es := give(c, b[:len(b)-1]); len(es) > 0 {
				t.Errorf("%+v: %d events before the last octet", f, len(es))
			}
			wantULPDU(t, giveOne(t, c, b[len(b)-1:]), pattern(1400, 0))
		}
	},
	"rfc5044/7.1/1": func(t *testing.T) {
		i, r := NewInitiator(0, plainConfig()), NewResponder(0, Config{})
		b := written(i)
		if want := request(); !bytes.Equal(b, want.Append(nil)) {
			t.Errorf("Request %x", b)
		}
		giveOne(t, r, b)
		must.Do(t, r.Accept(AcceptParam{}))
		b = written(r)
		if want := reply(); !bytes.Equal(b, want.Append(nil)) {
			t.Errorf("Reply %x", b)
		}
		giveOne(t, i, b)
		b = sent(i, pattern(18, 0)) // the next octets are an FPDU
		wantULPDU(t, giveOne(t, r, b), pattern(18, 0))
		wantULPDU(t, giveOne(t, i, sent(r, pattern(18, 1))), pattern(18, 1))
	},
}
