package wire

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

// The first wrong octet of the key is an error, so that a listener rejects other protocols early.
func TestStartFrameRejectsFirstWrongOctet(t *testing.T) {
	good := (&StartFrame{Revision: 1}).Append(nil)
	for i := range RequestKey {
		bad := bytes.Clone(good)
		bad[i] ^= 0x20
		for n := i + 1; n <= len(bad); n++ {
			must.Fail(t, fmt.Sprintf("octet %d wrong, %d octets", i, n), must.Err(new(StartFrame).Parse(bad[:n])), ErrKey)
		}
	}
}

func TestStartFrameLimitsPrivateData(t *testing.T) {
	for _, tc := range []struct {
		n    int
		want error
	}{{0, nil}, {MaxPrivateData, nil}, {MaxPrivateData + 1, ErrPrivateData}, {0xffff, ErrPrivateData}} {
		sent := StartFrame{Reply: true, CRC: true, Revision: 1, PrivateData: make([]byte, tc.n)}
		b := sent.Append(nil)
		var got StartFrame
		// The length alone is an error: a receiver need not wait for the data.
		if tc.want != nil {
			b = b[:StartFrameLen]
		}
		rest, err := got.Parse(b)
		if !errors.Is(err, tc.want) || tc.want == nil && (len(rest) != 0 || len(got.PrivateData) != tc.n) {
			t.Errorf("%d octets: %d parsed, %d left, %v; want %v", tc.n, len(got.PrivateData), len(rest), err, tc.want)
		}
		if !got.Reply || !got.CRC {
			t.Errorf("%d octets: wrong flags: %+v", tc.n, got)
		}
	}
}

func TestStartFrameSplit(t *testing.T) {
	data := append(Enhanced{PeerToPeer: true, IRD: 3, ORD: 7}.Append(nil), "mine"...)
	for _, tc := range []struct {
		name    string
		f       StartFrame
		ok      bool
		private string
	}{
		{"revision 2 with S", StartFrame{Revision: 2, Enhanced: true, PrivateData: data}, true, "mine"},
		{"revision 1 with S", StartFrame{Revision: 1, Enhanced: true, PrivateData: data}, false, string(data)},
		{"revision 2 without S", StartFrame{Revision: 2, PrivateData: data}, false, string(data)},
		{"three octets", StartFrame{Revision: 2, Enhanced: true, PrivateData: data[:3]}, false, string(data[:3])},
	} {
		e, private, ok := tc.f.Split()
		if ok != tc.ok || string(private) != tc.private {
			t.Errorf("%s: %q, %v; want %q, %v", tc.name, private, ok, tc.private, tc.ok)
		}
		if want := (Enhanced{PeerToPeer: true, IRD: 3, ORD: 7}); ok && e != want || !ok && e != (Enhanced{}) {
			t.Errorf("%s: %+v", tc.name, e)
		}
	}
}

func TestFramingFollowsReceiver(t *testing.T) {
	for _, tc := range []struct {
		receiver, sender StartFrame
		want             Framing
	}{
		{StartFrame{}, StartFrame{}, Framing{}},
		{StartFrame{Markers: true}, StartFrame{}, Framing{Markers: true}},
		{StartFrame{}, StartFrame{Markers: true}, Framing{}},
		{StartFrame{CRC: true}, StartFrame{}, Framing{CRC: true}},
		{StartFrame{}, StartFrame{CRC: true}, Framing{CRC: true}},
	} {
		if got := FramingTo(&tc.receiver, &tc.sender); got != tc.want {
			t.Errorf("to %+v from %+v: %+v, want %+v", tc.receiver, tc.sender, got, tc.want)
		}
	}
}
