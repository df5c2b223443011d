package ib

import (
	"reflect"

	"github.com/fabrictest/fabrictest/conformance/packet"
)

// Diff returns the fields of got that differ from the expected packet p. Fields and extension
// headers that are nil in p match any value. Behind are bytes after the UDP datagram.
func (p Packet) Diff(got Packet) packet.Differences {
	var d packet.Differences
	p.IP.Diff(&d, got.IP)
	p.UDP.Diff(&d, got.UDP)
	packet.DiffFields(&d, "", p.BTH, got.BTH)
	want, have := reflect.ValueOf(p.Extensions), reflect.ValueOf(got.Extensions)
	for i := range want.NumField() {
		name := want.Type().Field(i).Type.Elem().Name()
		switch w, g := want.Field(i), have.Field(i); {
		case w.IsNil():
		case g.IsNil():
			d.Add(name, "one", packet.NoValue)
		case Header(i) == HdrAETH:
			diffAETH(&d, p.AETH, got.AETH)
		default:
			packet.DiffFields(&d, name+" ", w.Interface(), g.Interface())
		}
	}
	packet.DiffBytes(&d, "payload", p.Payload, got.Payload)
	packet.DiffBytes(&d, "pad", p.Pad, got.Pad)
	packet.DiffValue(&d, "ICRC", "%#08x", p.ICRC, got.ICRC)
	packet.DiffBytes(&d, "bytes behind the datagram", p.Behind, got.Behind)
	return d
}

// Matches reports whether got matches the expected packet p.
func (p Packet) Matches(got Packet) bool { return len(p.Diff(got)) == 0 }

// diffAETH compares AETHs. It reports kind and value, the two parts of the syndrome, as one field.
func diffAETH(d *packet.Differences, want, got *AETH) {
	var syndrome packet.Differences
	packet.DiffFields(&syndrome, "", AETH{Kind: want.Kind, Value: want.Value}, got) // fields that are not set match any
	if len(syndrome) > 0 {
		d.Add("syndrome", want.describe(), got.describe())
	}
	packet.DiffValue(d, "MSN", "%d", want.MSN, got.MSN)
}
